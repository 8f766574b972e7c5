"""What all stores do alike when a ledger has gone back: see the port's `Losses`."""

from __future__ import annotations

from typing import Final

#: By how much fences and keys go ahead: more than were given in any part that can be lost.
JUMP: Final = 1_000_000
