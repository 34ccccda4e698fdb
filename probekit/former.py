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
GONE: Mapping[tuple[str, str], str] = {
    ("plot", "ax"): (
        "plot draws a whole figure; one Axes of your own is drawn by the functions of probekit.plots, such as "
        "probekit.plots.layer_curve(result.rows, ax=ax)."
    ),
    ("Analysis", "plot"): (
        "Analysis has no plot any more: result.plot() draws the kind of figure of its own name, or figure=KIND."
    ),
}
"""What is written in place of an argument that has no new name."""
LATER: Mapping[str, str | bool | None] = {"span_pair": "sides", "cosine": False, "tfidf": False, "through": None}
"""New options whose default is not what was done before, and what was: a recipe without them means that."""


def renamed(function: str, name: str) -> str:
    """The sentence that says the new name of an argument, or what is written in its place; "" for others."""
    new = FORMER.get(function, {}).get(name)
    return f"{name} of {function} is now {new}." if new else GONE.get((function, name), "")


def explained(error: Exception) -> str:
    """The message of an error; of a value that is made with a former argument, what is written in its place."""
    found = re.match(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    return (renamed(found[1], found[2]) if found else "") or str(error)


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
