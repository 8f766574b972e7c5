"""`python -m pledger` is the command `pledger`."""

import sys

from pledger.cli import main

sys.exit(main())
