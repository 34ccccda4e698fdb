"""Records of the steps of a study: which are done, with which inputs, and which files they wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from probekit.errors import UsageError
from probekit.files import FileKind, digest_of_content, read_json, slug, write
from probekit.notes import logger
from probekit.recipe import Recipe
from probekit.rows import card_path
from probekit.studies.steps import Step

log = logger(__name__)
FORMAT = "probekit-step/2"


def _is_record(path: Path) -> bool:
    record = json.loads(path.read_text(encoding="utf-8"))
    return isinstance(record, dict) and (record.get("format") == FORMAT or "command" in record)  # before version 0.2


def _is_digest(path: Path) -> bool:
    return re.fullmatch("[0-9a-f]{32}", path.read_text(encoding="utf-8").strip()) is not None


RECORD_FILE = FileKind("the record of a step", _is_record)
BEGUN_FILE = FileKind("the note of a step that was begun", _is_digest)
ENCODER_FILES = ("config.json", "model.safetensors")
REPLACED = "replaced"
"""Folder of a study for the rows of steps that are done again with other inputs."""
WHOLE = 1 << 24
"""Up to this size in bytes, files are compared by content; larger ones by size."""


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a completed step.

    Attributes
    ----------
    digest : str
        Digest of what determines the result; "" for records of earlier versions, which used another digest.
    without : tuple[str, ...], default ()
        Names of needed steps that were missing.
    left : Mapping[str, str | None], optional
        By file, the mark that identifies its content.
    warnings : tuple[str, ...], default ()
        What the step warned of.
    """

    digest: str
    without: tuple[str, ...] = ()
    seconds: float | None = None
    left: Mapping[str, str | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """The state of a step: "done", "again" (done before, with other inputs or incompletely) or "new"."""

    word: str
    digest: str
    seconds: float | None = None
    warnings: tuple[str, ...] = ()


def state_of(steps: Sequence[Step], out: Path) -> dict[str, State]:
    """By step, its state, its digest, and the seconds that it took."""
    digests: dict[str, str] = {}
    for step in steps:
        digests[step.name] = step.digest(digests)
    records = {step.name: read_record(out, step) for step in steps}
    same = {name for name, one in records.items() if one and one.digest == digests[name] and not one.without}
    whole = {step.name for step in steps if step.name in same and _is_whole(out, step, records[step.name])}
    gone = {step.name for step in steps if step.between and not any((out / leaf).exists() for leaf in step.leaves)}
    spared = same & gone  # missing files are only restored if a step that is not done needs them
    while True:
        done: set[str] = set()
        for step in steps:
            if (step.name in whole or step.name in spared) and done.issuperset(step.needs):
                done.add(step.name)
        needed = {need for step in steps if step.name not in done for need in step.needs}
        if not spared & needed:
            break
        spared -= needed
    words = {name: "done" if name in done else "again" if one else "new" for name, one in records.items()}
    return {
        name: State(words[name], digests[name], one.seconds, one.warnings) if one else State("new", digests[name])
        for name, one in records.items()
    }


def _is_whole(out: Path, step: Step, record: Record | None) -> bool:
    """Whether all files of a step exist and are unchanged."""
    return (
        record is not None
        and all((out / path).exists() for path in step.leaves)
        and all(_mark(out / path) == mark for path, mark in record.left.items())
    )


def _mark(path: Path) -> str | None:
    """The mark of a file: its size and, for small files, its digest."""
    try:
        size = path.stat().st_size
        return f"{size}" if size > WHOLE else f"{size} {digest_of_content(path)}"
    except OSError:
        return None


def _path(out: Path, step: Step) -> Path:
    return out / "steps" / f"{slug(step.name)}.json"


def _begun(out: Path, step: Step) -> Path:
    """The file with the digest under which an unfinished step was begun."""
    return out / "steps" / f"{slug(step.name)}.begun"


def read_record(out: Path, step: Step) -> Record | None:
    """The record of a step; None if it does not exist or cannot be read."""
    try:
        found = read_json(_path(out, step))
        if found.get("format") != FORMAT:
            return Record("") if found else None
        warnings = tuple(map(str, found.get("warnings", ())))
        return Record(str(found["digest"]), tuple(found["without"]), found["seconds"], dict(found["left"]), warnings)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_record(
    out: Path,
    step: Step,
    digest: str,
    recipe: Recipe,
    seconds: float,
    without: Sequence[str] = (),
    warnings: Sequence[str] = (),
) -> None:
    """Record that a step is done."""
    record = {
        "format": FORMAT, "step": step.name, "digest": digest, "without": list(without), "seconds": round(seconds, 1),
        "recipe": recipe.to_json(), "command": recipe.words(),
        "left": {leaf: _mark(out / leaf) for leaf in step.leaves}, "warnings": list(warnings),
    }  # fmt: skip
    write(_path(out, step), json.dumps(record, indent=1, ensure_ascii=False) + "\n", RECORD_FILE)


def make_room(out: Path, step: Step, digest: str) -> None:
    """Remove the files of a step with other inputs; a step begun with the same inputs resumes.

    Rows of a step that was done go to ``replaced/DIGEST/rows``, with cards and predictions. Files that have changed
    since, and files of an earlier version, are kept: the function itself checks whether it can use or replace them.
    """
    from probekit.activations.hdf5 import is_cache_file
    from probekit.adaptation.runs.folder import remove_run

    begun, record = _begun(out, step), read_record(out, step)
    before = _read_begun(begun) or digest
    if before != digest or (record and record.digest):
        for leaf in step.leaves:
            path = out / leaf
            if leaf.startswith("encoders/"):
                _remove_encoder(path.parent, leaf, record)
            elif leaf.startswith("runs/"):
                remove_run(out.joinpath(*Path(leaf).parts[:2]))
            elif not path.is_symlink() and path.is_file() and (_is_as_left(path, leaf, record) or is_cache_file(path)):
                if record and record.digest not in ("", digest) and leaf.startswith("rows/"):
                    _keep(out, leaf, record.digest)
                else:
                    path.unlink()
    remove_record(out, step)
    begun.parent.mkdir(parents=True, exist_ok=True)
    _begin(begun, digest)


def _keep(out: Path, leaf: str, digest: str) -> None:
    """Move rows or predictions that other inputs had given, and the card beside them, where nothing replaces them."""
    to = out / REPLACED / digest[:8] / leaf
    to.parent.mkdir(parents=True, exist_ok=True)
    for path in (out / leaf, card_path(out / leaf)):
        if path.is_file() and not path.is_symlink():
            path.replace(to.with_name(path.name))
    log.warning("Rows that were made with other options or data are kept in %s.", out / REPLACED)


def _remove_encoder(folder: Path, leaf: str, record: Record | None) -> None:
    """Delete an untrained encoder whose file ``leaf`` is as the study wrote it."""
    from probekit.models.folder import tokenizer_files
    from probekit.models.untrained import UNTRAINED

    if folder.is_symlink() or not _is_as_left(folder / Path(leaf).name, leaf, record):
        return
    for path in {*tokenizer_files(folder), folder / "vocab.txt", *map(folder.joinpath, (*ENCODER_FILES, UNTRAINED))}:
        path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def tidy(out: Path, step: Step) -> None:
    """Delete what a step that is done leaves: the note that it was begun, and caches that no other step needs."""
    from probekit.activations.hdf5 import is_cache_file

    begun = _begun(out, step)
    with suppress(OSError, ValueError):
        if not begun.is_symlink() and (not begun.stat().st_size or BEGUN_FILE.ours(begun)):
            begun.unlink()
    folder = out / step.scratch
    if not step.scratch or folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.glob("*.h5"):
        if not path.is_symlink() and is_cache_file(path):
            path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _is_as_left(path: Path, leaf: str, record: Record | None) -> bool:
    return record is not None and record.left.get(leaf) is not None and _mark(path) == record.left[leaf]


def _read_begun(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip() if path.exists() else ""


def _begin(path: Path, digest: str) -> None:
    """Store the digest under which a step begins."""
    write(path, digest, BEGUN_FILE)


def log_path(out: Path, step: Step) -> Path:
    """The log file of a step."""
    return out / "logs" / f"{slug(step.name)}.log"


def check_logs(out: Path, steps: Sequence[Step]) -> None:
    """Raise UsageError if the log of a step would replace a file that is not a log of this study."""
    for step in steps:
        path = log_path(out, step)
        known = _path(out, step).exists() or _begun(out, step).exists()
        if path.is_symlink() or (path.exists() and path.stat().st_size and not known):
            raise UsageError(f"{path} is not the log of a step of this study; move it, or give another --out.")


def remove_record(out: Path, step: Step) -> None:
    """Remove the record of a step that is no longer done."""
    record = read_record(out, step)
    if record and record.digest:
        _begin(_begun(out, step), record.digest)
    _path(out, step).unlink(missing_ok=True)
