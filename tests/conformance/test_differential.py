"""Every store gives the same answers to the same script, and shows the same rows after it.

`PLEDGER_SEEDS=0-999 make test ARGS=tests/conformance/test_differential.py` carries out a thousand other scripts. One
that fails is cut down to the steps that it takes.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from pledger.store.memory import MemoryStore, State
from pledger.store.postgres import PostgresStore
from pledger.store.postgres.address import Address
from pledger.store.sqlite import open_sqlite
from tests.conformance.differential import Side
from tests.conformance.harness import Clock, Ledger, emptied, empty_schema
from tests.conformance.scripts import Dice, Step

STEPS: Final = 120
SEEDS: Final = 10
#: Answers that must have come, beside those that say no.
EXPECTED: Final = {
    *(
        "Started",
        "Existing",
        "Sent",
        "Published",
        "Reply.WON",
        "Reply.LOST",
        "Reply.DUPLICATE",
        "Reply.CLOSED",
        "Reply.FULL",
    ),
    "Reply.HEARTBEAT_OK",
    *("claim_runs: something", "claim_tasks: something", "woken_runs: something", "take_answer: something"),
    *("renew_session: something", "bury_sessions: something", "resume: something", "forget_chains: something"),
    *("report_calls: something", "ask_dependency: something"),
}


def seeds() -> range:
    first, _, last = os.environ.get("PLEDGER_SEEDS", f"0-{SEEDS - 1}").partition("-")
    return range(int(first), int(last or first) + 1)


@pytest.fixture(scope="module")
def address() -> Address:
    return asyncio.run(empty_schema("differential"))


async def carry_out(script: Sequence[Step], directory: Path, address: Address) -> Counter[str]:
    """On each store; how often each answer came. Raises AssertionError where they differ."""
    clocks = [Clock(), Clock(), Clock()]
    state = State(clocks[0])
    ledgers = {
        "memory": Ledger(clocks[0], lambda: MemoryStore(state)),
        "sqlite": Ledger(clocks[1], lambda: open_sqlite(directory / "ledger.db", clock=clocks[1])),
        "postgres": Ledger(clocks[2], lambda: PostgresStore(address, clock=clocks[2])),
    }
    came: Counter[str] = Counter()
    try:
        sides = [Side(name, ledger) for name, ledger in ledgers.items()]
        assert isinstance(sides[2].store, PostgresStore)
        await emptied(sides[2].store)
        for number, step in enumerate(script, 1):
            first, *others = [await side.do(step) for side in sides]
            for side, answer in zip(sides[1:], others, strict=True):
                assert answer == first, f"step {number}, {step}, is answered otherwise by {side.name}"
            came.update(kinds_of(step, first))
        first, *others = [await side.rows() for side in sides]
        for side, rows in zip(sides[1:], others, strict=True):
            for what, found in rows.items():
                assert found == first[what], f"{side.name} shows another {what}"
    finally:
        for ledger in ledgers.values():
            await ledger.close()
    return came


def kinds_of(step: Step, answer: Any) -> Iterator[str]:
    """Of what kind the answers to a step are."""
    if step[0] == "commit":
        for answered in answer[1]:
            yield f"{answered[0] if isinstance(answered, tuple) else answered}"
    else:
        yield f"{step[0]}: {'something' if answer else 'nothing'}"


def differs(script: Sequence[Step], address: Address) -> AssertionError | None:
    with TemporaryDirectory(prefix="pledger-differential-") as directory:
        try:
            asyncio.run(carry_out(script, Path(directory), address))
        except AssertionError as error:
            return error
    return None


def cut_down(script: Sequence[Step], address: Address) -> tuple[list[Step], AssertionError]:
    """As few steps as it takes for the stores to differ."""
    left = list(script)
    error = differs(left, address)
    assert error is not None
    size = len(left) // 2
    while size:
        for at in range(len(left) - size, -1, -size):
            fewer = left[:at] + left[at + size :]
            if (found := differs(fewer, address)) is not None:
                left, error = fewer, found
        size //= 2
    return left, error


def test_the_same_script_has_the_same_answers(address: Address) -> None:
    came: Counter[str] = Counter()
    for seed in seeds():
        script = Dice(seed).script(STEPS)
        try:
            with TemporaryDirectory(prefix="pledger-differential-") as directory:
                came += asyncio.run(carry_out(script, Path(directory), address))
        except AssertionError:
            left, error = cut_down(script, address)
            error.add_note(f"seed {seed}, cut down to:\n" + "\n".join(map(str, left)))
            raise error from None
    if len(seeds()) >= SEEDS:
        assert came.keys() >= EXPECTED, "an answer that never comes proves nothing"


def test_a_store_that_differs_is_found_and_the_script_cut_down(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that forgets to say that an inbox is full."""
    monkeypatch.setattr("pledger.store.memory.mailbox._is_settled", lambda _: True)
    script = next(each for seed in seeds() if differs(each := Dice(seed).script(STEPS), address) is not None)
    left, _ = cut_down(script, address)
    assert len(left) <= 6
    assert any(kind == "commit" for kind, *_ in left)
