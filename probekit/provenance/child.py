"""``python -m probekit.provenance.child``: run the recipe on standard input, with torch's number of threads there."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext

from probekit.addresses import no_addresses
from probekit.display import shown
from probekit.errors import ProbekitError
from probekit.recipe import Recipe
from probekit.runtime import end_with_parent, torch_threads


def main() -> int:
    """Run a recipe; 2 where it fails, with a sentence on standard error."""
    end_with_parent()
    try:
        given = json.load(sys.stdin)
        threads = torch_threads(given["threads"]) if given["threads"] else nullcontext()
        with threads, no_addresses(allowed=given["allow_remote"]):
            Recipe.from_json(given["recipe"]).run()
    except (ProbekitError, OSError) as error:
        print(f"probekit: {shown(' '.join(str(error).split()))}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
