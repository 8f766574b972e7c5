"""How many examples, and which: the same ones in every run, unless more are asked for.

A test run must not fail for what it drew. `PLEDGER_EXAMPLES=2000 make test ARGS=tests/properties` goes and looks for
more.
"""

from __future__ import annotations

import os

from hypothesis import settings

_asked = int(os.environ.get("PLEDGER_EXAMPLES", "0"))
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("asked", max_examples=_asked or 100, deadline=None, print_blob=True)
settings.load_profile("asked" if _asked else "fixed")
