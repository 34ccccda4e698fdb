"""Arguments that have another name now. Recipes, cards and command lines of before are read with the new one."""

from __future__ import annotations

import re
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


def in_new_words(command: str) -> str:
    """A command line of before with the new names of its options.

    Examples
    --------
    >>> in_new_words("probekit mi a.h5 --shuffles 200")
    'probekit mi a.h5 --draws 200'
    """
    for old, new in FORMER.get(" ".join(command.split(" ")[1:2]).replace("-", "_"), {}).items():
        command = re.sub(rf" --{old.replace('_', '-')}(?=[ =]|$)", f" --{new.replace('_', '-')}", command)
    return command
