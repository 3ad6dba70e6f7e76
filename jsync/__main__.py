"""`python -m jsync` is the `jsync` command."""

import sys

from .cli import main

sys.exit(main())
