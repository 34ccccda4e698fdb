"""``probekit monitor``: a line in, a line out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from json import dumps
from typing import Any

from probekit.cli.made import made
from probekit.cli.show import say


@made()
def monitor(answers: Iterable[Mapping[str, Any]]) -> None:
    """Each answer as JSON, at once."""
    for answer in answers:
        say(dumps(answer, ensure_ascii=False))
        sys.stdout.flush()
