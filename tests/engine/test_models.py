"""pydantic models through whole workers: what was set, zones, and a record of a later version."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

from pledger import activity, workflow
from pledger.errors import RunBlockedError
from tests.engine.harness import Ledger
from tests.unit.history.pydantic_models import SUMMER, Leaf, Patch, facts

PATCH = Patch(at=SUMMER, leaf=Leaf(b=None))


@activity.defn
async def pass_on(patch: Patch) -> Patch:
    return patch


@workflow.defn
class Keeps:
    def __init__(self) -> None:
        self.noted: Patch | None = None

    @workflow.run
    async def run(self, patch: Patch) -> Patch:
        await workflow.wait_condition(lambda: self.noted is not None)
        assert self.noted is not None
        assert facts(self.noted) == facts(patch)
        return await pass_on(patch)

    @workflow.signal
    def note(self, patch: Patch) -> None:
        self.noted = patch


@workflow.defn
async def reads(leaf: Leaf) -> int:
    return leaf.a


#: As a later version might write a leaf: with notes of a kind that is not known here.
Later = TypedDict("Later", {"a": int, "$type": dict[str, Any]})


@workflow.defn(name="reads")
async def reads_later(leaf: Later) -> int:
    return leaf["a"]


async def test_a_model_is_the_same_in_run_signal_activity_and_result(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Keeps, pass_on):
        handle = await client.start_workflow(Keeps, PATCH, id="one")
        await handle.signal(Keeps.note, PATCH)
        assert facts(await handle.result()) == facts(PATCH)
        again = await client.start_workflow(Keeps, PATCH, id="one")
        assert not again.is_new


async def test_a_record_of_a_later_version_blocks_its_run_and_says_so(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, reads):
        handle = await client.start_workflow(reads_later, {"a": 1, "$type": {"later": []}}, id="one")
        with pytest.raises(RunBlockedError, match=r"notes that this version of Pledger does not know \(later\)"):
            await handle.result()
        await handle.terminate("enough seen")
