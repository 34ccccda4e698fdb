"""The evidence card next to a file of rows: all that is needed to check and to reproduce them."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache
from glob import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, reading
from probekit.files import FileKind, digest_of_content, read_json, writer_of
from probekit.recipe import Read
from probekit.version import VERSION

if TYPE_CHECKING:
    from probekit.recipe import Recipe

FORMAT = "probekit-card/2"
CACHE = (
    *("task", "split", "n", "data_digest", "model", "checkpoint", "step", "revision", "weights_digest"),
    *(
        "tokenizer_digest",
        "random_weights",
        "cut_at",
        "pooling",
        "tokens",
        "pairs",
        "stateful",
        "dtype",
        "store",
        "only",
    ),
    *("device", "allow_nonfinite", "part", "named", "doubts"),
)
"""The keys of a cache's spec that a card stores: those that determine its numbers, and its model's name in rows."""
PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "torch", "transformers", "bitsandbytes")


def make_card(recipe: Recipe, reads: Iterable[Read], seconds: Mapping[str, float]) -> dict[str, Any]:
    """The card of an analysis, as JSON values: its recipe, inputs and environment.

    Two identical calls have the same card except for ``seconds`` and ``created``.
    """
    return {
        "format": FORMAT,
        "recipe": recipe.to_json(),
        "words": str(recipe),
        "reads": [read.to_json() for read in reads],
        "seconds": {stage: round(s, 3) for stage, s in seconds.items()},
        **environment(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def reads_of(card: Mapping[str, Any]) -> tuple[Read, ...]:
    """The inputs in a card; KeyError or TypeError if it says them in another way."""
    return tuple(
        Read(r["path"], r["kind"], r["digest"], {k: v for k, v in r.items() if k not in ("path", "kind", "digest")})
        for r in card.get("reads", ())
    )


def environment() -> dict[str, Any]:
    """What may affect the numbers in addition to recipe and data: versions, machine, and revision of the code."""
    base_versions = {"python": platform.python_version(), "probekit": VERSION}
    return {
        "versions": base_versions | {p: v for p in PACKAGES if (v := _version(p))},
        "machine": _machine(),
        "git": revision(),
    }


@lru_cache(maxsize=1)
def _machine() -> dict[str, Any]:
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    processor = platform.processor() or platform.machine()
    if (info := Path("/proc/cpuinfo")).is_file():
        names = [line for line in info.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    blas = {
        f"{library['internal_api']} {library['version']}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    return {"system": platform.system(), "processor": processor, "blas": sorted(blas)}


@lru_cache(maxsize=1)
def revision() -> str | None:
    """Revision of the repository that holds this code, with "-dirty" for changed files; None for an installed wheel."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        run = ["git", "--no-optional-locks", "-C", str(here), *words]
        return subprocess.run(run, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def card_path(path: str | Path) -> Path:
    """The path of the evidence card for the rows at ``path``: ``ROWS.parquet`` → ``ROWS.parquet.json``."""
    path = Path(path)
    return path.parent / f"{path.name}.json"


def old_card_path(path: str | Path) -> Path:
    """Its path in versions before the format "probekit-card/2": ``ROWS.parquet`` → ``ROWS.json``."""
    path = Path(path)
    return path.parent / f"{path.stem}.json"


def find_card(path: str | Path) -> Path | None:
    """The existing evidence card for the rows at ``path``, under its current or old name, or None."""
    name, places = Path(path).name, (card_path(path), old_card_path(path))
    return next((card for card in places if _rows_of(card).get("file") == name), None)


def is_card(path: Path) -> bool:
    """Whether a file is an evidence card."""
    return {"file", "xxh3_128"} <= set(_rows_of(path))


def _rows_of(card: Path) -> dict[str, Any]:
    """The part of a card about its rows; {} for any other file."""
    try:
        return dict(read_json(card)["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


CARD_FILE = FileKind("an evidence card that probekit wrote", is_card, "choose another name for the rows")


def describes(path: Path) -> bool:
    """Whether a card next to the rows at ``path`` has their current digest.

    A process that is killed after the rows are renamed leaves the card under a hidden name.
    """
    card = card_path(path)
    hidden = [p for p in path.parent.glob(f".{escape(card.name)}.*") if (writer_of(p.name) or ("",))[0] == card.name]
    held = [_rows_of(candidate) for candidate in (card, old_card_path(path), *hidden)]
    known = {str(rows.get("xxh3_128")) for rows in held if rows.get("file") == path.name}
    return bool(known) and digest_of_content(path) in known


def read_card(path: str | Path) -> dict[str, Any]:
    """The evidence card of the rows at ``path``; raises DataError if it is missing or describes other rows."""
    path, card_file = Path(path), find_card(path) or card_path(path)
    if not card_file.is_file():
        raise DataError(f"does not exist; {path.name} has no evidence card.", file=card_file)
    with reading(card_file, "an evidence card"):
        card: dict[str, Any] = dict(read_json(card_file))
        card["rows"] = dict(card.get("rows") or {})
    if card.get("rows", {}).get("xxh3_128") != digest_of_content(path):
        raise DataError(
            f"the card describes other rows than those in {path.name}. Compute the rows again.", file=card_file
        )
    return card
