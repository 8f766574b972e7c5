"""A run that ends every worker that takes it is parked, and no other one with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pledger import workflow
from pledger.errors import RunBlockedError
from tests.engine.harness import Ledger, until

#: A worker process that lives until a run ends it, or all that is well has been loaded. argv: the ledger, and whether.
LIFE = """
import asyncio, os, sys
from datetime import timedelta
from pledger import Worker, connect
from tests.engine.test_poison import Waits

async def live():
    async with connect(sys.argv[1]) as client:
        async with Worker(client, workflows=[Waits], lease=timedelta(milliseconds=300), build_id="1"):
            if sys.argv[2] == "start":
                for number in range(RUNS):
                    await client.start_workflow(Waits, f"{number}", id=f"order-{number}")
                os._exit(9)
            await asyncio.sleep(20)

asyncio.run(live())
"""
RUNS = 12
POISON = "3"


@workflow.defn(name="Waits")
class Waits:
    deadly = False
    said = ""

    @workflow.run
    async def run(self, number: str) -> str:
        if self.deadly and number == POISON:
            import os  # noqa: PLC0415 - the worst that code can do

            os._exit(9)
        await workflow.wait_condition(lambda: self.said != "")
        return self.said

    @workflow.signal
    def say(self, text: str) -> None:
        self.said = text


def life(ledger: Ledger, what: str) -> subprocess.Popen[bytes]:
    code = LIFE.replace("RUNS", str(RUNS)).replace(
        "async def live", "Waits.deadly = sys.argv[2] == 'die'\n\nasync def live", 1
    )
    return subprocess.Popen([sys.executable, "-c", code, ledger.url, what])


async def test_a_run_that_ends_its_workers_is_parked_alone(file_ledger: Ledger) -> None:
    assert life(file_ledger, "start").wait(30) == 9
    async with file_ledger.connect() as client:
        handles = [client.handle(f"order-{number}") for number in range(RUNS)]

        async def parked() -> bool:
            return (await handles[int(POISON)].describe()).blocked is not None

        worker = life(file_ledger, "die")
        deaths = 0
        while not await parked():
            if worker.poll() is not None:
                assert worker.returncode == 9
                deaths += 1
                worker = life(file_ledger, "die")
            await until(lambda: True)
        assert deaths > 2
        for number, handle in enumerate(handles):
            if number == int(POISON):
                with pytest.raises(RunBlockedError, match="workers in a row took this run"):
                    await handle.result()
            else:
                await handle.signal(Waits.say, "yes")
                assert await handle.result() == "yes"
        worker.kill()
        worker.wait()
