"""The results in a folder: their kinds and sizes, and which of them can be made again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from probekit.activations import ActivationCache
from probekit.activations.hdf5 import open_cache_file
from probekit.activations.manifest import BEGUN, MANIFEST, MANIFEST_FILE, is_shard_folder, shards_in
from probekit.activations.writing.journal import journal_path, partial_path
from probekit.activations.writing.leases import is_of_worker, of_workers
from probekit.analyses.stream.state import is_state
from probekit.calls import checked
from probekit.constraint import File
from probekit.errors import CacheError, UsageError
from probekit.files import DATA_CACHE, held, in_words, is_running, parse_json, read_json
from probekit.hdf5 import DAMAGE
from probekit.models.identity import CARD, RUN_FORMAT
from probekit.provenance.disk import cache_of, pieces, size_of, state, trials_of, written_by
from probekit.provenance.documents import with_documents
from probekit.provenance.old_cards import recipe_of_command
from probekit.provenance.options import What
from probekit.provenance.remake import Place, Sources, recipe_of_spec
from probekit.provenance.study_folder import StudyFolder
from probekit.recipe import Recipe
from probekit.rows import COLUMNS, find_card
from probekit.rows.files import SUFFIXES

__all__ = ["Item", "What", "results"]

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Item:
    """A result, or the remains of one.

    Attributes
    ----------
    kind : str
        "cache", "unfinished cache", "run", "unfinished run", "rows", "examples", "counts", "state", "model", "study",
        "report", "figure", "caption", "table", "search", "task file", "data", "leftover", "link" or "unknown"
    about : str, default ''
        Description of its content, or of its fault.
    task, model : str, default ''
        Task and model of its numbers, if known.
    size : int, default 0
        Bytes in total.
    what : What, optional
        The kind under which it may be deleted; None if it may not be deleted, for the reason in ``why``.
    command : str, default ''
        The command that recomputes it, "" if unknown; ``recipe`` is the recipe of a cache or a run.
    created : str, default ''
        The time that the file itself records.
    changed : float, default 0.0
        Seconds since 1970.
    paths : tuple[Path, ...], default ()
        The files to delete; ``states`` are their states when they were found.
    spec : Mapping[str, Any], optional
        The spec of a cache; name and step of a run.
    """

    path: Path
    kind: str
    about: str = ""
    task: str = ""
    model: str = ""
    size: int = 0
    what: What | None = None
    why: str = ""
    command: str = ""
    recipe: Recipe | None = None
    created: str = ""
    changed: float = 0.0
    paths: tuple[Path, ...] = ()
    states: tuple[tuple[int, ...], ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The item as JSON values."""
        names = ("kind", "about", "task", "model", "size", "why", "command", "created")
        values = {name: getattr(self, name) for name in names}
        return {"path": str(self.path), **values, "clean": None if self.what is None else str(self.what)}


@checked
def results(
    folder: File = DATA_CACHE,
    /,
    *,
    model: Iterable[str | Path] = (),
    data_dir: File | None = None,
    verify: bool = False,
) -> list[Item]:
    """List the files in a folder of results: kind, task, model, size, age, and whether each can be made again.

    Folders of studies and runs, rows, caches, reports, figures, captions and task files are recognised. Nothing is
    changed, and links are not followed. Large files are not read in full, only their descriptions; models and data are
    read as far as needed to decide whether a cache can be recomputed.

    Under the command's table stands what ``probekit clean`` would delete, and why a cache cannot be made again. A
    narrow terminal leaves out model, task and age.

    Parameters
    ----------
    folder : path
        Listed with all folders below it; data_cache/ by default.
    model : iterable of path
        Folder of a model from which caches were made; on the command line also a pattern ``'RUN/step-*'``. May be
        repeated.
    data_dir : path, optional
        Folder of the data from which caches were made, or with a folder for each task. The hub's local cache is
        searched as well.
    verify : bool
        Also read the files of models in the hub's cache.

    Returns
    -------
    list of Item
        One for each result, and for each leftover of an interrupted one.

    Raises
    ------
    UsageError
        For a folder that does not exist, and for a model's folder without a model.

    Examples
    --------
    >>> [item.path for item in probekit.results("runs") if item.kind == "run"]  # doctest: +SKIP

    On the command line::

        probekit results
        probekit results runs/
        probekit results data_cache/ --model models/bert-of-mine --json
    """
    folder, sources = Path(folder), Sources(_model_folders(model), data_dir)
    for needed, content in ((folder, "results"), (sources.data_dir, "data")):
        if needed is not None and not needed.is_dir():
            raise UsageError(f"there is no folder {str(needed)!r}; give the folder that holds the {content}.")
    studies: dict[Path, StudyFolder] = {}
    found = sorted(_walk(folder), key=lambda item: item.path)
    trained = {(i.spec["run"], i.spec["step"]): i.path for i in found if i.kind == "run" and i.spec}
    trained |= {(i.spec["run"], int(p.name[5:])): p for i in found if i.kind == "run" for p in i.paths}
    found = [
        _with_sources(item, sources, studies, trained, verify=verify)
        if item.kind in ("cache", "unfinished cache") and item.spec
        else item
        for item in found
    ]
    return sorted(with_documents(_by_study(found, studies)), key=lambda item: item.path)


def _model_folders(models: Iterable[str | Path]) -> list[Path]:
    found = [Path(model).expanduser() for model in models]
    for path in found:
        if not (path / "config.json").is_file():
            raise UsageError(f"{path} is not the folder of a model: it has no config.json.")
    return found


def _with_sources(
    item: Item,
    sources: Sources,
    studies: dict[Path, StudyFolder],
    trained: Mapping[tuple[Any, Any], Path],
    *,
    verify: bool,
) -> Item:
    """A cache with the recipe that makes it again, and whether its model and data are here."""
    out = item.path.with_name(cache_of(item.path.name) or item.path.name)
    recipes = [_study(out, studies, 2).maker_of(f"{out.absolute().parent.name}/{out.name}"), item.recipe]
    run = trained.get((item.spec.get("checkpoint"), item.spec.get("step")))
    models = [run, *(one.arguments.get("model") for one in recipes if one)]
    places = [place for one in recipes for place in Place.all_of(one, out)]
    found = sources.find(item.spec, [m for m in models if isinstance(m, str | Path)], places=places, verify=verify)
    recipe = recipe_of_spec(item.spec, out, found.model, found.data)
    item = replace(item, recipe=recipe, command=str(recipe))
    if item.kind != "cache":
        return item
    why = item.why or found.missing
    return replace(item, why=why, what=None if why else What.CACHES)


def _study(path: Path, studies: dict[Path, StudyFolder], up: int) -> StudyFolder:
    """The folder of the study that a file ``up`` levels below it would be of."""
    folder = path.absolute().parents[up - 1]
    if folder not in studies:
        studies[folder] = StudyFolder.read(folder)
    return studies[folder]


def _by_study(found: Sequence[Item], studies: dict[Path, StudyFolder]) -> Iterator[Item]:
    """The same items, those files of a study that are not results of their own gathered by folder."""
    parts: dict[Path, tuple[StudyFolder, list[Item]]] = {}
    for item in found:
        up = 1 if item.path.name in ("study.json", ".lock", "report.html") else 2
        study = _study(item.path, studies, up) if item.kind == "unknown" else None
        part = study.part_of(item.path) if study else None
        if part is None or study is None:
            yield item
        else:
            parts.setdefault(part, (study, []))[1].append(item)
    for part, (study, items) in parts.items():
        about = study.title if part.name == "study.json" else f"{len(items)} files" if part.is_dir() else ""
        size, changed = sum(item.size for item in items), max(item.changed for item in items)
        yield Item(part, "study", about, size=size, why="it is part of a study", changed=changed)


def _item(path: Path, kind: str, about: str = "", *, paths: Iterable[Path] = (), **more: Any) -> Item:
    paths = tuple(paths)
    what: dict[str, Any] = {"size": sum(map(size_of, paths or (path,))), "states": tuple(map(state, paths))}
    return Item(path, kind, about, **{**what, "paths": paths, "changed": _changed(path), **more})


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:  # gone meanwhile
        return time.time()


def _walk(folder: Path) -> Iterator[Item]:
    """The items of a folder: its files, folders that are one result, and the items of other folders."""
    if is_shard_folder(folder) or any(of_workers(p.name) or p.name == BEGUN for p in folder.iterdir()):
        yield from _shards(folder)
        return
    names = {p.name: p for p in sorted(folder.iterdir())}
    for path in [p for p in names.values() if p.is_symlink()]:
        del names[path.name]
        yield _item(path, "link", f"to {path.readlink()}", why="links are left alone")
    for path in [p for p in names.values() if p.is_dir()]:
        item = _folder(path)
        if item is None:
            yield from _walk(path)
        else:
            yield item
    files = {name: path for name, path in names.items() if path.is_file()}
    for out in sorted({p.with_name(cache_of(p.name)) for p in files.values() if cache_of(p.name)}):
        for piece in (out, *pieces(out)):
            files.pop(piece.name, None)
        yield from _cache(out)
    for path in [p for p in files.values() if p.suffix in SUFFIXES]:
        if (item := _table(path, files)) is not None:
            if card := find_card(path):
                files.pop(card.name, None)
            del files[path.name]
            yield item
    if trials := trials_of(files):
        for path in trials:
            del files[path.name]
        yield _item(trials[0], "search", "its trials", paths=trials, why="results are left alone")
    for path in files.values():
        pid = written_by(path)
        if pid is None and path.suffix == ".npz" and is_state(path):
            yield _item(path, "state", "of probekit stream", why="results are left alone")
        else:
            yield _item(path, "unknown", why="not of probekit") if pid is None else _left(path, pid)


def _shards(folder: Path) -> Iterator[Item]:
    """A cache in shards, and what killed workers left beside it; other files are not of probekit."""
    names = {p.name: p for p in sorted(folder.iterdir())}
    workers = [p for p in names.values() if is_of_worker(p)]
    manifests = [p for p in (folder / MANIFEST, folder / BEGUN) if p.is_file() and not p.is_symlink()]
    shards = [*(p for p in manifests if p.name == MANIFEST or _is_manifest(p)), *shards_in(folder).values()]
    why = ""
    for lease in (*workers, *(p for p in shards if p.name == BEGUN)):
        with held(lease) as alive:
            if alive or time.time() - _changed(lease) < HOUR:
                why = "another process is writing it" if alive else "it was written less than an hour ago"
    if shards:
        item = _finished(folder)
        about, paths = f"{item.about}; {len(shards_in(folder))} shards", shards
        if not (folder / MANIFEST).is_file():
            about = f"{len(shards_in(folder))} shards, and no manifest yet"
            item = replace(item, kind="unfinished cache", why="", what=What.UNFINISHED)
            paths = [*shards, *workers]
        sizes: dict[str, Any] = {
            "size": sum(map(size_of, paths)),
            "paths": tuple(paths),
            "states": tuple(map(state, paths)),
        }
        item = replace(item, about=about, **sizes)
        yield replace(item, why=why, what=None) if why else item
    if workers and (not shards or (folder / MANIFEST).is_file()):
        what = None if why else What.LEFTOVERS
        yield _item(workers[0], "leftover", f"of {len(workers)} files of workers", paths=workers, why=why, what=what)
    for path in names.values():
        if path not in shards and path not in workers:
            pid = written_by(path)
            yield _item(path, "unknown", why="not of probekit") if pid is None else _left(path, pid)


def _is_manifest(path: Path) -> bool:
    try:
        return MANIFEST_FILE.ours(path)
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _cache(out: Path) -> Iterator[Item]:
    """A cache, and the files beside it of one that is being made: two items at most."""
    with held(journal_path(out)) as busy:
        why = "another process is writing it" if busy else ""
        if out.is_file() and not out.is_symlink():
            yield replace(_finished(out), why=why) if busy else _finished(out)
        left = pieces(out)
        if not left:
            return
        if busy:
            yield _item(left[0], "unfinished cache", why=why, paths=left)
        elif partial_path(out) in left:
            about, spec = _unfinished(partial_path(out))
            more = _names(spec)
            more |= {"what": What.UNFINISHED} if spec or journal_path(out) in left else {"why": "it may not be a cache"}
            yield _item(partial_path(out), "unfinished cache", about, paths=left, **more)
        elif journal_path(out) in left:
            yield _item(left[0], "leftover", "of a cache", paths=left, what=What.LEFTOVERS)
        else:
            yield from (_item(path, "unknown", why="not of probekit") for path in left)


def _finished(path: Path) -> Item:
    try:
        with ActivationCache(path) as cache:
            created = str(cache.attributes.get("created", ""))
            more = {"created": created, "recipe": cache.recipe, **_names(cache.spec)}
            return _item(path, "cache", _about(cache.spec), paths=[path], **more)
    except (CacheError, *DAMAGE) as error:
        fault = str(error).removeprefix(str(path)).lstrip(": ")
        return _item(path, "cache", fault, why="it cannot be read")


def _names(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Task and model of a cache, with its spec."""
    if not spec:
        return {"spec": spec}
    model = str(spec["model"]) + ("" if spec.get("random_weights") is None else ", random weights")
    return {"spec": spec, "task": f"{spec['task']} {spec['split']}", "model": model}


def _about(spec: Mapping[str, Any]) -> str:
    """A cache in words."""
    model = f"{spec['model']}" + (f", step {spec['step']} of {spec.get('checkpoint')}" if "step" in spec else "")
    model += f", random weights {spec['random_weights']}" if spec.get("random_weights") is not None else ""
    vectors = " + ".join([*spec["pooling"], *([f"tokens ({spec['tokens']})"] if spec["tokens"] else [])])
    layers = f"{len(spec['layers'])} layers, {vectors}, {spec['store']}"
    return f"{spec['task']} {spec['split']}, {model}: {spec['n']:,} examples, {layers}"


def _unfinished(path: Path) -> tuple[str, dict[str, Any]]:
    """Description and spec of a cache that is not finished."""
    try:
        with open_cache_file(path) as f:
            spec = parse_json(f.attrs["spec"])
            return _about(spec), spec
    except (CacheError, *DAMAGE) as error:
        return f"it cannot be read ({error})", {}


def _folder(path: Path) -> Item | None:
    """A folder that is one result; None for a folder of several."""
    pid = written_by(path)
    if pid is not None:
        return _left(path, pid)
    if (path / CARD).is_file():
        return _run(path)
    if (path / "config.json").is_file():
        return _item(path, "model", _model_type(path), why="its source is not known")
    return None


def _run(path: Path) -> Item:
    """The folder of a training: its checkpoints may be deleted, or all files of an unfinished one."""
    size: dict[str, Any] = {"size": size_of(path), "changed": _changed(path / CARD)}
    try:
        card = read_json(path / CARD)
        if card["format"] != RUN_FORMAT:
            why = f"of format {card['format']!r}; this version reads {RUN_FORMAT!r}"
            return _item(path, "run", why, why="its content is not known", **size)
        about = f"{card['task']}, {card['model']}, {card['regime']}"
        for name, value in list((card.get("metrics") or {}).items())[:1]:
            about += f": {name} {value:.3f}"
        recipe = _recipe_of(card)
        more: dict[str, Any] = {**size, "created": str(card["created"]), "recipe": recipe, "command": str(recipe or "")}
        more |= {"task": str(card["task"]), "model": f"{card['model']}, {card['regime']}"}
        more["spec"] = {"run": str(card["run"]), "step": int(card["step"])}
        complete = bool(card["complete"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return _item(path, "run", f"its card cannot be read ({error})", why="its content is not known", **size)
    steps = sorted(p for p in path.glob("step-*") if _is_checkpoint(p))
    with held(path / ".lock") as busy:
        if busy:
            return _item(path, "unfinished run", about, why="another process is writing to it", **more)
    if not complete:
        left = [p for p in (path / ".resume", *steps, path / CARD) if p.exists() and not p.is_symlink()]
        return _item(path, "unfinished run", about, paths=left, what=What.UNFINISHED, **more)
    why = "" if steps else "it holds results"
    if steps and (recipe is None or recipe.function != "train"):
        why = "its command is not known"
    about += f"; {len(steps)} checkpoints of {in_words(sum(map(size_of, steps)))}" if steps else ""
    return _item(path, "run", about, paths=steps, why=why, what=None if why else What.CHECKPOINTS, **more)


def _recipe_of(card: Mapping[str, Any]) -> Recipe | None:
    """The recipe of a run; None where its card holds none that this version can read."""
    try:
        return Recipe.from_json(card["recipe"]) if "recipe" in card else recipe_of_command(card.get("command"))
    except UsageError:
        return None


def _is_checkpoint(path: Path) -> bool:
    return bool(re.fullmatch(r"step-\d+", path.name)) and not path.is_symlink() and (path / CARD).is_file()


def _model_type(path: Path) -> str:
    try:
        return str(read_json(path / "config.json").get("model_type", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _table(path: Path, files: Mapping[str, Path]) -> Item | None:
    """Rows with their card, examples, or counts; None where a file is none of these."""
    card, result = find_card(path), "results are left alone"
    if card and card.name in files:  # not a link
        content = read_json(card)
        more: dict[str, Any] = {"size": size_of(path) + size_of(card), "created": str(content.get("created", ""))}
        more |= {"command": str(content.get("words", content.get("command", ""))), **_subjects(path)}
        return _item(path, "rows", f"{content['rows'].get('count', '?')} rows", why=result, **more)
    if path.suffix != ".parquet":
        return None
    from pyarrow import ArrowException, parquet

    try:
        schema = parquet.read_schema(path)
    except (OSError, ArrowException) as error:
        return _item(path, "unknown", f"it cannot be read as Parquet ({error})", why="its content is not known")
    if path.name.endswith(".examples.parquet"):
        return _item(path, "examples", why=result, **_subjects(path))
    if b'"probekit-counts/' in (schema.metadata or {}).get(b"probekit", b""):
        return _item(path, "counts", "of terms", why="its source is not known")
    found = set(COLUMNS) <= set(schema.names)
    return _item(path, "rows", "without a card", why=result, **_subjects(path)) if found else None


def _subjects(path: Path) -> dict[str, Any]:
    """The tasks and models of a Parquet file of rows or examples, as far as it has these columns."""
    from pyarrow import ArrowException, parquet

    try:
        names = [name for name in ("task", "model") if name in parquet.read_schema(path).names]
        table = parquet.read_table(path, columns=names)
        values = {name: [str(v) for v in table[name].unique().to_pylist() if v] for name in names}
    except (OSError, ArrowException):  # CSV, or damaged
        return {}
    return {name: found[0] if len(found) == 1 else f"{len(found)} {name}s" for name, found in values.items() if found}


def _left(path: Path, pid: int) -> Item:
    """A file that was to be renamed. The hour is for processes of other machines that write on the same disk."""
    why = "its process is still running" if is_running(pid) else ""
    if not why and time.time() - _changed(path) < HOUR:
        why = "it was written less than an hour ago"
    return _item(path, "leftover", f"of process {pid}", paths=[path], why=why, what=None if why else What.LEFTOVERS)
