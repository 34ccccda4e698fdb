"""Rows: what every analysis returns, how it is stored, and the evidence card beside it.

A row is one measured number. It says what was measured on what (the columns below), the number, its interval, and
how many examples it rests on; further columns belong to the analysis that wrote them.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.errors import DataError, UsageError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS",
    "called",
    "card_path",
    "check_out",
    "evidence",
    "make_rows",
    "read_card",
    "read_rows",
    "write_rows",
]

COLUMNS = (
    *("task", "split", "model", "checkpoint", "step", "layer", "representation", "estimator", "target"),
    *("metric", "value", "ci_low", "ci_high", "seed", "n"),
)
"""The columns that come first, in this order.

task, split, model : names; checkpoint : name or "", step : Int64 or missing
layer : Int64, so that layers sort as numbers; missing for ``final_norm`` and for rows of no layer. The column
    ``layer_name`` after ``n`` tells these two apart: "0" … "L", "final_norm", or "".
representation : pooling, or "none"; estimator : what measured; target : "gold", or the name of a control
value, ci_low, ci_high : float64; NaN where undefined or not estimated
seed : Int64 or missing; n : Int64, how many examples the number rests on
"""
TEXT = ("task", "split", "model", "checkpoint", "representation", "estimator", "target", "metric", "layer_name")
WHOLE = ("step", "layer", "seed", "n")
REAL = ("value", "ci_low", "ci_high")
OPTIONAL = {"checkpoint": "", "step": None, "ci_low": None, "ci_high": None, "seed": None}
CACHE = (
    *("task", "split", "n", "data_digest", "model", "checkpoint", "step", "revision", "weights_digest"),
    *("tokenizer_digest", "random_weights", "cut_at", "pooling", "tokens", "pairs", "stateful", "dtype", "store"),
    *("device", "allow_nonfinite"),
)
"""What a card keeps of the spec of a cache: what determines its numbers, and no more."""
PACKAGES = ("probekit", "numpy", "scipy", "scikit-learn", "pandas", "torch", "transformers")


def make_rows(records: Iterable[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Records as rows: the columns in order, with their dtypes.

    records : one mapping a row, or a DataFrame. ``layer`` may be a number, "0" … "L", "final_norm" or None. The keys
        checkpoint, step, ci_low, ci_high and seed may be absent; others beyond COLUMNS follow in order of appearance.
    Raises DataError naming the missing column, or the row and column of a value that is not what it should be.
    """
    import pandas as pd

    rows = pd.DataFrame(records if isinstance(records, pd.DataFrame) else list(records))
    if rows.empty:
        rows = pd.DataFrame(columns=[*COLUMNS, "layer_name"])
    missing = [c for c in COLUMNS if c not in rows and c not in OPTIONAL]
    if missing:
        raise DataError(f"rows lack the columns {', '.join(missing)}; there are {', '.join(map(str, rows.columns))}.")
    rows = rows.assign(**{c: default for c, default in OPTIONAL.items() if c not in rows})
    if "layer_name" not in rows:
        rows["layer_name"] = [_layer_name(v) for v in rows["layer"]]
    rows["layer"] = [int(name) if name.isdigit() else None for name in rows["layer_name"].fillna("").astype(str)]
    own = [c for c in rows.columns if c not in {*COLUMNS, "layer_name"}]
    rows = rows[[*COLUMNS, "layer_name", *own]].reset_index(drop=True)
    for column in TEXT:
        rows[column] = rows[column].fillna("").astype("string")
    for column in (*WHOLE, *REAL):
        rows[column] = _numbers(rows[column], whole=column in WHOLE)
    if (upside_down := rows["ci_low"] > rows["ci_high"]).any():
        raise DataError(f"row {_first(upside_down)}: the interval is upside down (ci_low > ci_high).")
    return rows


def called(row: Mapping[Any, Any] | pd.Series) -> str:
    """What a row is of in words: model, checkpoint, step and representation, as far as it has them."""
    step = "" if str(row["step"]) in ("<NA>", "nan", "None") else f"step {row['step']:,}"
    return ", ".join(filter(None, (row["model"], row["checkpoint"], step, row["representation"])))


def _layer_name(layer: Any) -> str:
    import pandas as pd

    if isinstance(layer, str):
        return layer
    return "" if pd.isna(layer) else str(int(layer))


def _numbers(column: pd.Series, *, whole: bool) -> pd.Series:
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    bad = numbers.isna() & column.notna()
    if whole:
        bad |= numbers.notna() & (numbers % 1 != 0).fillna(value=False)
    if bad.any():
        wanted = "a whole number" if whole else "a number"
        raise DataError(f"row {_first(bad)}, column {column.name!r}: {column[bad].iloc[0]!r} is not {wanted}.")
    return numbers.astype("Int64") if whole else numbers.astype("float64")


def _first(bad: pd.Series) -> int:
    return int(bad.to_numpy(dtype=bool).nonzero()[0][0]) + 1


def evidence(
    *,
    caches: Iterable[Any] = (),
    arguments: Mapping[str, Any] | None = None,
    seeds: Mapping[str, int] | None = None,
    durations: Mapping[str, float] | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """The card of an analysis: all that is needed to trust its rows and make them again. JSON values only.

    caches : the activation caches that were read; their ``spec_id``, ``path`` and what makes them again are kept
    arguments, seeds : of the analysis; durations : seconds by stage
    command : the command line that makes the rows again; this process's own where None
    """
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # of python -m NAME
    words = [name, *sys.argv[1:]]
    return {
        "caches": [{"spec_id": c.spec_id, "path": str(c.path), **_made_of(c)} for c in caches],
        "arguments": dict(arguments or {}),
        "seeds": dict(seeds or {}),
        "durations": {stage: round(s, 3) for stage, s in (durations or {}).items()},
        "command": shlex.join(words) if command is None else command,
        "versions": {"python": platform.python_version(), **{p: v for p in PACKAGES if (v := _version(p))}},
        "git": _git_revision(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _made_of(cache: Any) -> dict[str, Any]:
    """What a cache is of, as far as it determines the numbers."""
    spec = getattr(cache, "spec", {})
    return {"spec": {key: spec[key] for key in CACHE if key in spec}} if spec else {}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_revision() -> str | None:
    """Revision of the repository around the working directory, with "-dirty" for changed files; None without one."""
    try:
        run = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        return subprocess.run(run, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def card_path(path: str | Path) -> Path:
    """Where the evidence card of the rows at ``path`` lies: ``ROWS.parquet`` → ``ROWS.json``."""
    return Path(path).with_suffix(".json")


def check_out(path: Path | None) -> None:
    """Raise UsageError, before the work is done, where no file of rows can be written at ``path``."""
    if path is None:
        return
    if path.suffix not in (".parquet", ".csv"):
        raise UsageError(f"rows are written as .parquet or .csv, not {path.name!r}.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file, such as {path / 'rows.parquet'}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"nothing can be written in {path.parent} ({error.strerror}).") from None


def write_rows(rows: pd.DataFrame, path: str | Path, card: Mapping[str, Any]) -> Path:
    """Write ``rows`` as Parquet, or CSV by suffix, and ``card`` (from :func:`evidence`) as JSON beside them.

    Both files appear whole: written beside, then renamed, the card last; the card holds the size and the xxh3 digest
    of the file of rows, so that the two can be told to belong together. Returns ``path``.
    Raises UsageError for another suffix and DataError for rows that are not rows.
    """
    path, rows = Path(path), make_rows(rows)
    writers: dict[str, Callable[[Path], None]] = {
        ".parquet": lambda to: rows.to_parquet(to, index=False),
        ".csv": lambda to: rows.to_csv(to, index=False),
    }
    writer = writers.get(path.suffix)
    if writer is None:
        raise UsageError(f"rows are written as .parquet or .csv, not {path.suffix!r} ({path}).")
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    card_beside = beside.with_suffix(f"{beside.suffix}-card")
    try:
        writer(beside)
        digest = _digest(beside)
        body = {"rows": {"file": path.name, "count": len(rows), "xxh3_128": digest}, **card}
        card_beside.write_text(json.dumps(body, indent=2, ensure_ascii=False, default=str) + "\n", encoding="utf-8")
        beside.replace(path)
        card_beside.replace(card_path(path))
    finally:
        beside.unlink(missing_ok=True)
        card_beside.unlink(missing_ok=True)
    return path


def _digest(path: Path) -> str:
    import xxhash

    return xxhash.xxh3_128(path.read_bytes()).hexdigest()


def read_card(path: str | Path) -> dict[str, Any]:
    """The evidence card of the rows at ``path``; raises DataError where it is absent or describes other rows."""
    path, beside = Path(path), card_path(path)
    if not beside.is_file():
        raise DataError(f"there is no evidence card beside {path.name}.", file=beside)
    card: dict[str, Any] = json.loads(beside.read_text(encoding="utf-8"))
    if card.get("rows", {}).get("xxh3_128") != _digest(path):
        raise DataError(f"the card describes other rows than {path.name} holds. Make the rows again.", file=beside)
    return card


def read_rows(*paths: str | Path) -> pd.DataFrame:
    """The rows of all files (Parquet or CSV), one after another. Raises DataError naming the file."""
    import pandas as pd

    if not paths:
        raise UsageError("no file of rows was given.")
    return make_rows(pd.concat([_read(Path(p)) for p in paths], ignore_index=True))


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    if path.suffix in {".h5", ".hdf5"}:
        raise DataError("this is an activation cache, not rows. Make rows of it with probekit probe.", file=path)
    if path.suffix not in {".parquet", ".csv"}:
        raise DataError(f"rows are .parquet or .csv, not {path.suffix!r}.", file=path)
    if not path.is_file():
        raise DataError("there is no such file of rows.", file=path)
    try:
        if path.suffix == ".parquet":
            return make_rows(pd.read_parquet(path))
        text = dict.fromkeys(TEXT, "str")  # and nothing but blank is missing: a task may be called "NA"
        return make_rows(
            pd.read_csv(path, dtype=text, keep_default_na=False, na_values=[""], float_precision="round_trip")
        )
    except DataError as error:
        raise DataError(str(error), file=path) from None
    except (OSError, ValueError) as error:  # pyarrow's and pandas' parsing errors are ValueErrors
        raise DataError(f"cannot be read as {path.suffix[1:]} ({error}).", file=path) from error
