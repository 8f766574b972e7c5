"""Reverts of what has a payload opened where, and as, it was sealed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from pledger.codecs import AesGcm, KeyRing
from pledger.engine.port.records import Mail
from pledger.engine.sealed_store import SealedStore
from pledger.history.sealing import Place
from pledger.history.transition import StoredTransition
from pledger.testing import Faults
from tests.simulation.reverts.revert import ANSWERS_LOST, Revert
from tests.simulation.running import KEYS


def mail_is_not_opened(patch: pytest.MonkeyPatch) -> None:
    async def read_mail(self: SealedStore, run_keys: list[int]) -> list[Mail]:
        return await self._inner.read_mail(run_keys)

    patch.setattr(SealedStore, "read_mail", read_mail)


def what_a_reset_has_taken_over_is_opened_as_its_own(patch: pytest.MonkeyPatch) -> None:
    async def origin(self: SealedStore, run_key: int) -> Callable[[StoredTransition], Place]:
        place = await self._place(run_key)
        return lambda _: place

    patch.setattr(SealedStore, "_origin", origin)


def _encrypted() -> dict[str, Any]:
    return {"codecs": [AesGcm(KeyRing(KEYS, current="odd"), entropy=random.Random("nonces").randbytes)]}


REVERTS = [
    Revert(
        mail_is_not_opened,
        ("no run blocks", "everything finishes", "told is true"),
        faults=ANSWERS_LOST,
        cases=("approval",) * 2,
        options=_encrypted(),
    ),
    Revert(
        what_a_reset_has_taken_over_is_opened_as_its_own,
        ("no run blocks", "results are true", "everything finishes"),
        faults=Faults(reset=1.0, restart=0.1),
        cases=("errand",) * 3,
        options=_encrypted(),
    ),
]
