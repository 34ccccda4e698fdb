"""TOML files that users write: tasks, searches, studies. Errors name the line and column."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from probekit.errors import DataError, UsageError, did_you_mean
from probekit.files import read_lines

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

BACKSLASH = (
    "A backslash in double quotation marks begins an escape, such as \\t for a tab. Write a path in single quotation "
    "marks ('C:\\data\\train.csv'), or with forward slashes (\"C:/data/train.csv\")."
)
_ESCAPES = {ord(c): f"\\{letter}" for c, letter in zip("\b\t\n\f\r", "btnfr", strict=True)}
_ESCAPED_PATH = re.compile(r"(?s)(?=.*[\b\t\n\f\r])([A-Za-z]:[^ {:]+|[^ ]*\.\w{1,10})")


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Values and text of a TOML file; raises DataError naming file, line and column."""
    text = "\n".join(read_lines(path))
    return parse_toml(text, path), text


def read_named(where: str | Path, shipped: Mapping[str, str], what: str) -> tuple[dict[str, Any], Path]:
    """The values of a TOML file, or of a named one that comes with probekit, and the path to use in errors.

    Parameters
    ----------
    where
        A path that ends in ``.toml``, or a name.
    shipped
        TOML texts by name.
    what
        The kind of file, for messages: ``"study"``.

    Raises
    ------
    UsageError
        If there is no such name.
    DataError
        If the file cannot be read, or is not TOML.
    """
    path = Path(where)
    if path.suffix == ".toml":
        return read_toml(path)[0], path
    if (text := shipped.get(str(where))) is None:
        raise UsageError(
            f"there is no {what} {str(where)!r}; {did_you_mean(str(where), shipped, most=4)} A file of your own must "
            "end in .toml."
        )
    return parse_toml(text, path), path


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """The values of a TOML text; errors name ``path``."""
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise DataError("is nested too deeply.", file=path) from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        problem, *place = found.groups() if found else (str(error),)
        line, column = map(int, place) if place else (None, None)
        wrong = text.split("\n")[line - 1 : line] if line else []
        cure = BACKSLASH if any("\\" in one and '"' in one for one in wrong) else "Strings need quotation marks."
        message = f"is not valid TOML: {problem}. {cure}"
        raise DataError(message, file=path, line=line, column=column) from error
    except ValueError as error:  # a number of thousands of digits
        raise DataError(f"is not valid TOML: {error}.", file=path) from error
    _check_paths(values, text, path)
    return values


def _check_paths(value: Any, text: str, path: Path) -> None:
    """Raise DataError for a path of Windows whose backslashes TOML has read as escapes: ``"data\\train.csv"``."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_paths(inner, text, path)
    elif isinstance(value, str) and _ESCAPED_PATH.fullmatch(value):
        written = value.replace("\\", "\\\\").translate(_ESCAPES)
        if (at := text.find(written)) < 0:
            return
        line = text.count("\n", 0, at) + 1
        raise DataError(f'"{written}" holds a control character. {BACKSLASH}', file=path, line=line)


def line_of(text: str, key: str) -> int | None:
    """The line of a key or its table; None if there is no such line."""
    found = re.search(rf"^\s*\[?\s*[\"']?{re.escape(key)}[\"']?\s*[\]=.]", text, flags=re.MULTILINE)
    return None if found is None else text.count("\n", 0, found.start()) + 1 + found.group().count("\n")


def what_is_wrong(error: ValidationError, model: type[BaseModel], wanted: Mapping[str, str] | None = None) -> str:
    """The first error that pydantic finds, as a sentence that begins with the key.

    Parameters
    ----------
    error
        The error of ``model.model_validate``.
    model
        The model of the whole file; keys of nested models are known, too.
    wanted
        Descriptions of valid values, by key, to replace pydantic's: ``{"header": "true or false"}``.
    """
    first = error.errors()[0]
    loc = first["loc"]
    place = ".".join(str(key) for key in loc if key not in ("int", "str", "bool", "float"))  # which of several types
    if first["type"] == "missing":
        return f"lacks {place}; add {loc[-1]} = …."
    if first["type"] == "extra_forbidden":
        known = (field.alias or name for name, field in _model_at(model, loc).model_fields.items())
        return f"unknown key {place!r}; {did_you_mean(str(loc[-1]), known, show=repr)}"
    if first["type"] == "literal_error":
        values = re.findall("'([^']+)'", first["ctx"]["expected"])
        return f"{place} is {first['input']!r}; {did_you_mean(str(first['input']), values, show=repr)}"
    description = first["msg"].removeprefix("Value error, ")
    if must := (wanted or {}).get(str(loc[0])):
        description = f"it must be {must}"
    return f"{place} is {first['input']!r}; {description.replace('Input should be', 'it must be')}."


def _model_at(model: type[BaseModel], loc: Iterable[int | str]) -> type[BaseModel]:
    """The model that holds the last key of ``loc``."""
    from pydantic import BaseModel

    for key in list(loc)[:-1]:
        fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
        found = fields.get(str(key))
        model = next((a for a in (found, *get_args(found)) if isinstance(a, type) and issubclass(a, BaseModel)), model)
    return model
