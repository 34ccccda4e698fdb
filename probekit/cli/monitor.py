"""``probekit monitor``: a line in, a line out; ``probekit import-probe``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from json import dumps
from typing import TYPE_CHECKING, Any

from probekit.cli.made import made, show_tables
from probekit.cli.show import saved, say

if TYPE_CHECKING:
    from probekit.rows import Result


@made()
def import_probe(result: Result) -> None:
    """Its metrics on the cache, and where the probe is kept."""
    show_tables(result)
    saved(result)
    if (folder := result.recipe.leaves.get("keep")) is not None:
        say(folder)


@made()
def monitor(answers: Iterable[Mapping[str, Any]]) -> None:
    """Each answer as JSON, at once."""
    for answer in answers:
        say(dumps(answer, ensure_ascii=False))
        sys.stdout.flush()
