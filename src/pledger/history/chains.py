"""Chains: a run and the successors that go on for it, each with an empty history.

The run id of a successor is that of the run that was started, and its number: `01J9X`, `01J9X.2`, `01J9X.3`. So whoever
has a run id, in a task row or in another process, knows the chain and the place in it, and the keys that steps have by
default differ from segment to segment.
"""

from __future__ import annotations

import hashlib
from typing import Final

_DOT: Final = "."


def place_of(run_id: str) -> tuple[str, int]:
    """(chain_id, segment): the run id of the first run, and the number of this one, from 1."""
    chain_id, dot, segment = run_id.rpartition(_DOT)
    return (chain_id, int(segment)) if dot and segment.isdecimal() else (run_id, 1)


def run_id_of(chain_id: str, segment: int) -> str:
    """The run id of a segment."""
    return chain_id if segment == 1 else f"{chain_id}{_DOT}{segment}"


def next_seed(seed: bytes) -> bytes:
    """What feeds the draws of the successor: other values than its predecessor's, and the same whoever makes it."""
    return hashlib.blake2b(seed, digest_size=16, person=b"pledger.chain").digest()
