"""TOML files that people write: tasks, searches, studies. What is wrong in them is told with its place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from probekit.errors import DataError, UsageError, close_names, did_you_mean
from probekit.files import read_lines

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

__all__ = ["parse_toml", "read_named", "read_toml", "what_is_wrong"]


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """Values and text of a TOML file; raises DataError naming file, line and column."""
    text = "\n".join(read_lines(path))
    return parse_toml(text, path), text


def read_named(where: str | Path, shipped: Mapping[str, str], what: str) -> tuple[dict[str, Any], Path]:
    """The values of a TOML file, or of one that comes with probekit by its name; and the path for errors to name.

    Parameters
    ----------
    where
        A path that ends in ``.toml``, or a name.
    shipped
        Texts of TOML by their names.
    what
        What the file is called: ``"study"``.

    Raises
    ------
    UsageError
        There is no such name.
    DataError
        The file cannot be read, or is no TOML.
    """
    path = Path(where)
    if path.suffix == ".toml":
        return read_toml(path)[0], path
    if (text := shipped.get(str(where))) is None:
        names = close_names(str(where), shipped, most=4) or shipped
        raise UsageError(
            f"there is no {what} {str(where)!r}; give a file that ends in .toml, or one of {', '.join(names)}."
        )
    return parse_toml(text, path), path


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """The values of a TOML text that ``path`` holds, or stands for."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise DataError("is nested deeper than can be read.", file=path) from None
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"(.*) \(at line (\d+), column (\d+)\)", str(error))
        what, *place = found.groups() if found else (str(error),)
        line, column = map(int, place) if place else (None, None)
        message = f"is not valid TOML: {what}. Texts need quotation marks."
        raise DataError(message, file=path, line=line, column=column) from error
    except ValueError as error:  # a number of thousands of digits
        raise DataError(f"is not valid TOML: {error}.", file=path) from error


def what_is_wrong(error: ValidationError, model: type[BaseModel], wanted: Mapping[str, str] | None = None) -> str:
    """The first thing that pydantic finds wrong, as a sentence that begins with the key.

    Parameters
    ----------
    error
        What ``model.model_validate`` raised.
    model
        The whole file; keys of the models below it are known, too.
    wanted
        What a key takes, where that can be said better: ``{"header": "true or false"}``.
    """
    first = error.errors()[0]
    loc = first["loc"]
    place = ".".join(str(key) for key in loc if key not in ("int", "str", "bool", "float"))  # which of several types
    if first["type"] == "missing":
        return f"says no {place}; add {loc[-1]} = …."
    if first["type"] == "extra_forbidden":
        known = (field.alias or name for name, field in _model_at(model, loc).model_fields.items())
        return f"unknown key {place!r}; {did_you_mean(str(loc[-1]), known, show=repr)}"
    own = first["msg"].removeprefix("Value error, ")
    if must := (wanted or {}).get(str(loc[0])):
        own = f"it must be {must}"
    return f"{place} is {first['input']!r}; {own.replace('Input should be', 'it must be')}."


def _model_at(model: type[BaseModel], loc: Iterable[int | str]) -> type[BaseModel]:
    """The model of the keys beside the last one of ``loc``."""
    from pydantic import BaseModel

    for key in list(loc)[:-1]:
        fields = {field.alias or name: field.annotation for name, field in model.model_fields.items()}
        found = fields.get(str(key))
        model = next((a for a in (found, *get_args(found)) if isinstance(a, type) and issubclass(a, BaseModel)), model)
    return model
