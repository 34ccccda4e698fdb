"""The commands of kept probes that answer otherwise than with tables alone: lines, an exit status, a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from json import dumps, loads
from typing import Any

from probekit.analysis import analyses
from probekit.cli.made import made, show, show_tables
from probekit.cli.show import saved, say
from probekit.grid import Format
from probekit.rows import Result


@made()
def import_probe(result: Result) -> None:
    """Its metrics on the cache, and where the probe is kept."""
    show_tables(result)
    saved(result)
    if result.recipe is not None and (folder := result.recipe.leaves.get("keep")) is not None:
        say(folder)


@made()
def monitor(answers: Iterable[Mapping[str, Any]]) -> None:
    """Each answer as JSON, at once."""
    for answer in answers:
        say(dumps(answer, ensure_ascii=False))
        sys.stdout.flush()


@made()
def recheck(result: Result, *, format_: Format = Format.TEXT, json: bool = False) -> int:
    """The answer; exit status 0 for a pass, and 1 for any other answer, an inconclusive one too.

    Parameters
    ----------
    format_
        Format of tables: text, markdown, latex or csv. Unless it is text, all other output goes to standard error.
    json
        Print the answer, its sentences and the rows as JSON.
    """
    answer = str(result.rows["answer"].iloc[0])
    if json:
        rows = loads(result.rows.to_json(orient="records"))
        say(dumps({"answer": answer, "passed": answer == "pass", "verdict": [*result.verdict], "rows": rows}, indent=2))
    else:
        show(analyses()["recheck"], result, format_=format_)
    return 0 if answer == "pass" else 1
