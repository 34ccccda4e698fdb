"""Arguments that have another name now. Recipes, cards and command lines of before are read with the new one."""

from __future__ import annotations

from collections.abc import Mapping

FORMER: Mapping[str, Mapping[str, str]] = {
    "choices": {"resamples": "draws"},
    "mi": {"shuffles": "draws"},
    "mutual_information": {"shuffles": "draws"},
    "similarity": {"permutations": "draws"},
    "transferability": {"permutations": "draws"},
    "table": {"rows": "rows_out"},
    "plot": {"o": "out"},
    "report": {"o": "out"},
}
"""By function: the new name of each former one."""


def renamed(function: str, name: str) -> str:
    """The sentence that says the new name of an argument; "" if it has none."""
    new = FORMER.get(function, {}).get(name)
    return f"{name} of {function} is now {new}." if new else ""
