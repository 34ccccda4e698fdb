"""``python -m probekit``."""

import sys

from probekit.cli import main

sys.exit(main())
