"""``python -m probekit.provenance.child``: run the recipe on standard input. This process receives no other input."""

from __future__ import annotations

import json
import sys

from probekit.display import shown
from probekit.errors import ProbekitError
from probekit.recipe import Recipe
from probekit.runtime import end_with_parent

__all__ = ["main"]


def main() -> int:
    """Run a recipe; 2 where it fails, with a sentence on standard error."""
    end_with_parent()
    try:
        Recipe.from_json(json.load(sys.stdin)).run()
    except (ProbekitError, OSError) as error:
        print(f"probekit: {shown(' '.join(str(error).split()))}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
