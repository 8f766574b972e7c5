"""Random numbers of a simulation: each who draws has dice of its own."""

from __future__ import annotations

import random


def fork(dice: random.Random) -> random.Random:
    """Further dice, seeded by these: a draw more in one place does not shift those of the others."""
    return random.Random(dice.getrandbits(64))  # noqa: S311 - a test, no secret
