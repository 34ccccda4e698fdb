"""Making rows again from their evidence card, without trusting the card, and comparing them with what they were.

A card may come from a stranger. Its command is never given to a shell: it is cut into words, must be one of the
commands that write rows, and is put together again from what the command's own parser understood. All that it may
write goes into a folder of ours; the child process that runs it has ``data_cache/`` there, too.
"""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probekit.activations import ActivationCache
from probekit.errors import CacheError, DataError, UsageError
from probekit.models.identity import CARD
from probekit.provenance.remake import how_made, recorded
from probekit.rows import COLUMNS, card_path, evidence, read_card

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COMMANDS", "Difference", "Makes", "changes", "compare_rows", "read_any_card", "rerun", "unread", "words_of"]


@dataclass(frozen=True, slots=True)
class Makes:
    """What a command writes, by the names of its parameters.

    rows : which one names the rows, and ``inside`` which file of it they are, where it is a folder
    asked : what else it writes, where asked to; always : what it writes even where not asked to
    dropped : what reports to others and has no part in the numbers
    reads : what must be there, beside caches, of which the card tells more
    """

    rows: str
    inside: str = ""
    asked: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


COMMANDS = {
    **dict.fromkeys(("probe", "mdl", "mi"), Makes("out")),
    "compare": Makes("out", reads=("first", "second")),
    "summary": Makes("out", reads=("tables",)),
    "guidelines": Makes("out", reads=("runs",)),
    "evaluate": Makes("out", asked=("caches",), reads=("run", "cache", "data_dir")),
    "table": Makes("rows_out", asked=("out",), reads=("rows",)),
    "domains": Makes("out", asked=("counts",), reads=("data_dir",)),
    "train": Makes("out", "rows.parquet", asked=("caches",), dropped=("report_to",), reads=("data_dir",)),
    "search": Makes("out", "rows.parquet", reads=("data_dir",)),
    "demo": Makes("figures", "layers.parquet", always=("caches",)),
}
"""The commands that write rows, and are run again."""

CHILD = """
import sys
from pathlib import Path
from probekit import files
files.DATA_CACHE = Path(sys.argv.pop(1))
sys.argv[0] = "probekit"
from probekit.cli import main
sys.exit(main())
"""


def read_any_card(path: str | Path) -> tuple[dict[str, Any], Path]:
    """A card and the rows that it is of; given by itself, by its rows, or by the card or the folder of a run.

    Raises DataError where there is no such card or it is none, UsageError where it does not hold a command.
    """
    path = Path(path)
    if path.is_dir() or path.name == CARD:
        path = (path if path.is_dir() else path.parent) / "rows.json"
    card = card_path(path)
    if not card.is_file():
        raise DataError("there is no such evidence card; probekit writes one beside the rows (--out).", file=card)
    try:
        told = json.loads(card.read_text(encoding="utf-8"))
        command, name = told["command"], Path(told["rows"]["file"]).name
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"this is no evidence card of rows ({error!r}).", file=card) from None
    if not isinstance(command, str) or not command.strip():
        raise UsageError(f"{card} tells no command.")
    if not (card.parent / name).is_file():
        raise DataError(f"the rows {name} that the card is of are not beside it.", file=card)
    return told, card.parent / name


def words_of(card: Mapping[str, Any], cli: Any, scratch: Path, folder: Path) -> tuple[list[str], Path]:
    """The words of the command, all that it writes turned to ``scratch``; and where its rows will be.

    cli : the command line as click knows it; folder : the one that the command's relative paths are below
    Raises UsageError for what is no command of probekit that writes rows, or not one that this version understands.
    """
    name, command, context, given = _understood(card, cli)
    makes = COMMANDS[name]
    given = {key: value for key, value in given.items() if key not in makes.dropped}
    out = _turned(given.get(makes.rows), makes.rows, scratch, folder)
    if not makes.inside and out.suffix not in (".parquet", ".csv"):
        raise UsageError(f"the card's command writes no rows (--out is {given.get(makes.rows)!r}).")
    given[makes.rows] = str(out)
    for key in (*makes.asked, *makes.always):
        if key in given or key in makes.always:
            given[key] = str(_turned(given.get(key), key, scratch, folder))
    return [name, *_put(command, context, given)], out / makes.inside if makes.inside else out


def unread(card: Mapping[str, Any], cli: Any, folder: Path) -> list[str]:
    """What the command reads and is not there, in words; caches aside, which :func:`changes` tells of."""
    name, _, _, given = _understood(card, cli)
    found = []
    for key in COMMANDS[name].reads:
        value = given.get(key)
        for word in value if isinstance(value, tuple | list) else [] if value is None else [value]:
            path = folder / Path(str(word)).expanduser()
            if not (path.exists() or (has_magic(str(word)) and glob(str(path)))):  # noqa: PTH207 (absolute, too)
                found.append(f"there is no {word} in {folder}, which the command reads")
    return found


def _understood(card: Mapping[str, Any], cli: Any) -> tuple[str, Any, Any, dict[str, Any]]:
    """The command of a card: its name, what click knows of it, and the values of its parameters."""
    try:
        program, *words = shlex.split(card["command"])
    except ValueError as error:
        raise UsageError(f"the card's command cannot be read ({error}): {card['command']!r}") from None
    if program not in ("probekit", "__main__.py"):
        raise UsageError(
            f"the card's command is {card['command']!r}: the rows were made by a program, not by a command of "
            "probekit. Run that program again, and compare what it writes."
        )
    top = type(cli).context_class(cli, info_name="probekit")
    words = _parsed(cli, top, words)[1]
    if not words or words[0] not in COMMANDS:
        raise UsageError(
            f"probekit {words[0] if words else ''} is not run again; what is: {', '.join(sorted(COMMANDS))}."
        )
    name = words[0]
    command = cli.get_command(top, name)
    context = type(command).context_class(command, info_name=name, parent=top)
    given, rest = _parsed(command, context, words[1:])
    if rest:
        raise UsageError(f"probekit {name} does not understand {shlex.join(rest)}.")
    return name, command, context, given


def _parsed(command: Any, context: Any, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """What a command's own parser makes of words: values by parameter, and words that are left. Nothing is called."""
    try:
        given, rest, order = command.make_parser(context).parse_args(list(words))
    except Exception as error:
        if not hasattr(error, "format_message"):  # click's, or that of the copy of click that typer brings
            raise
        raise UsageError(f"this version does not understand the card's command: {error.format_message()}") from None
    named = {parameter.name for parameter in order}
    if {"help", "version", "install_completion", "show_completion"} & named:
        raise UsageError("the card's command asks for help, or for the version; it makes no rows.")
    return {key: value for key, value in given.items() if key in named}, list(rest)


def _put(command: Any, context: Any, given: Mapping[str, Any]) -> list[str]:
    """The words that a command's parser makes the same of: --name=value, then -- and the arguments."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in command.get_params(context):
        value = given.get(parameter.name)
        if parameter.param_type_name == "argument":
            arguments += (
                [] if value is None else [str(v) for v in (value if isinstance(value, tuple | list) else [value])]
            )
        elif parameter.name in given:
            name = max(parameter.opts, key=len)
            if isinstance(value, bool):
                options.append(name if value else max(parameter.secondary_opts, key=len))
            else:
                options += [f"{name}={v}" for v in (value if isinstance(value, tuple | list) else [value])]
    return [*options, "--", *arguments]


def _turned(path: Any, key: str, scratch: Path, folder: Path) -> Path:
    """Where something is written instead of ``path``: under the same name, which rows may tell."""
    return scratch / key / ((folder / str(path)).resolve().name or key) if path else scratch / key / key


def changes(card: Mapping[str, Any], rows: Path, folder: Path) -> tuple[list[str], list[str]]:
    """What is otherwise now than when the rows were made, in words; and what is missing to make them again."""
    otherwise: list[str] = []
    missing: list[str] = []
    try:
        read_card(rows)
    except DataError:
        otherwise.append(f"{rows} is not the file that the card was written for: one of them was changed since")
    with chdir(folder):  # whose revision it is
        now = evidence()
    then = card.get("versions")
    for package, version in sorted((then if isinstance(then, dict) else {}).items()):
        if (here := now["versions"].get(package)) != version:
            otherwise.append(f"{package} was {version}, is {here or 'not there'}")
    if card.get("git") != now["git"]:
        otherwise.append(f"the revision of the folder was {card.get('git')}, is {now['git']}")
    caches = card.get("caches")
    for cache in caches if isinstance(caches, list) else []:
        try:
            path, again = folder / Path(cache["path"]).expanduser(), ""
            if cache.get("spec"):
                words = recorded(path)  # where the study is still there
                made = f"it was made by {shlex.join(words)}" if words else how_made(cache["spec"], cache["path"])
                again = f"; {made}"
            if not path.is_file():
                missing.append(f"there is no cache {cache['path']} in {folder.resolve()}{again}")
            elif wrong := _wrong(path, cache["spec_id"]):
                otherwise.append(f"{wrong}{again}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"what it says of caches cannot be read ({error!r}).", file=card_path(rows)) from None
    return otherwise, missing


def _wrong(path: Path, spec_id: str) -> str:
    """What is wrong with a cache; "" where it is what it was."""
    try:
        with ActivationCache(path) as cache:
            return "" if cache.spec_id == spec_id else f"{path} holds other activations than it did"
    except CacheError as error:
        return str(error)


def rerun(words: Sequence[str], scratch: Path, folder: Path) -> None:
    """Run a command of probekit in ``folder``; raises UsageError where it fails."""
    command = [sys.executable, "-c", CHILD, str(scratch / "data_cache"), *words]
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise UsageError(f"the command ended with the status {done.returncode}, so there is nothing to compare.")


KEYS = (*(c for c in COLUMNS if c not in ("value", "ci_low", "ci_high", "p", "n", "layer")), "layer_name")
"""What says which row a row is; rows of which all is equal are told apart by their order."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How rows differ from what they were.

    metrics : one row a metric: ``metric``; ``rows`` in both; ``equal`` in all columns, to the bit; ``value``,
        ``interval`` and ``others``, the largest absolute differences of the value, of its interval and of what other
        numbers there are; ``words``, the columns of whole numbers and words that differ, with commas
    missing, new : rows that are no more, and that were not there
    """

    metrics: pd.DataFrame
    missing: pd.DataFrame
    new: pd.DataFrame

    def within(self, tolerance: float) -> bool:
        """Whether all rows are there and no number is further off than ``tolerance``."""
        largest = self.metrics[["value", "interval", "others"]].to_numpy(dtype=float).max(initial=0.0)
        same = self.missing.empty and self.new.empty and not self.metrics["words"].any()
        return bool(same and largest <= tolerance)


def compare_rows(then: pd.DataFrame, now: pd.DataFrame) -> Difference:
    """Row by row, whatever their order. Two NaN are equal; of a NaN and a number the difference is infinite."""
    import pandas as pd

    sides = [_keyed(rows) for rows in (then, now)]
    both = sides[0].index.intersection(sides[1].index, sort=False)
    a, b = (side.loc[both] for side in sides)
    own = [c for c in dict.fromkeys([*a.columns, *b.columns]) if c not in KEYS and c != "layer"]
    numbers = [c for c in own if all(c in s and pd.api.types.is_float_dtype(s[c]) for s in (a, b))]
    off = pd.DataFrame({c: _off(a[c], b[c]) for c in numbers}, index=both)
    other = pd.DataFrame({c: _unequal(a, b, c) for c in own if c not in numbers}, index=both)
    records = []
    for metric in a["metric"].unique():
        here = (a["metric"] == metric).to_numpy()
        far, words = off[here], other[here]
        rest = [c for c in numbers if c not in ("value", "ci_low", "ci_high")]
        records.append(
            {
                "metric": metric,
                "rows": int(here.sum()),
                "equal": int(((far == 0).all(axis=1) & ~words.any(axis=1)).sum()),
                "value": far["value"].max(),
                "interval": far[["ci_low", "ci_high"]].to_numpy().max(),
                "others": far[rest].to_numpy().max(initial=0.0),
                "words": ", ".join(c for c in words if words[c].any()),
            }
        )
    columns = ["metric", "rows", "equal", "value", "interval", "others", "words"]
    missing, new = (mine.loc[mine.index.difference(both)] for mine in sides)
    return Difference(pd.DataFrame(records, columns=columns), missing, new)


def _keyed(rows: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    keys = rows[list(KEYS)].astype("string").fillna("")
    keys["again"] = keys.groupby(list(KEYS)).cumcount()
    return rows.set_index(pd.MultiIndex.from_frame(keys))


def _off(a: pd.Series, b: pd.Series) -> Any:
    import numpy as np

    x, y = a.to_numpy(dtype=float, na_value=math.nan), b.to_numpy(dtype=float, na_value=math.nan)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=math.inf, posinf=math.inf))


def _unequal(a: pd.DataFrame, b: pd.DataFrame, column: str) -> Any:
    import numpy as np

    if column not in a or column not in b:
        return np.ones(len(a), dtype=bool)
    x, y = a[column], b[column]
    return ~((x == y).fillna(value=False).to_numpy(dtype=bool) | (x.isna() & y.isna()).to_numpy())
