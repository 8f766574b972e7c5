"""830 real orders, three workers on one SQLite file, one SIGKILL a second or so, and a reconciliation at the end.

    make demo        or        python -m examples.orders.demo --help

This process starts the orders, plays the dispatch board's people, kills workers, and watches; it runs no workflow code.
It ends with exit code 1 when the ledger and the outside world disagree about any order.
"""

import asyncio
import contextlib
import random
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.orders.crew import Crew
from examples.orders.orders import Order, load_never_shipped, load_orders, opening_stock
from examples.orders.outside import FILE_VARIABLE, DispatchBoard, Temper, World
from examples.orders.reconcile import Truth, reconcile
from examples.orders.screen import Progress, Screen, print_calls, print_endings, print_verdict
from examples.orders.worker import LEDGER_VARIABLE
from examples.orders.workflow import FulfilOrder
from pledger import Client, connect, errors

#: Orders that come in per second: slowly enough that every kill hits a worker in the middle of something.
ARRIVALS_PER_S = 70

#: How long a booked parcel may wait. Longer than a courier takes and a dead worker's runs lie idle, so that only the 21
#: orders for which no courier ever came run into it.
DISPATCH_WITHIN = timedelta(seconds=15)

#: An order that has not ended after this many seconds counts as lost.
PATIENCE_S = 120.0

TICK_S = 0.1


@dataclass
class Demo:
    directory: Path
    orders: list[Order]
    seed: int
    workers: int
    kills: int
    console: Console
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = Progress(len(self.orders))

    @property
    def ledger(self) -> Path:
        return self.directory / "ledger.db"

    @property
    def outside(self) -> Path:
        return self.directory / "outside.db"

    def run(self) -> bool:
        """Whether ledger and outside world agree."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        world = World.create(
            self.outside, opening_stock(self.orders), no_shows=load_never_shipped(), temper=Temper(self.seed)
        )
        self.console.print(
            f"{len(self.orders)} orders, {self.workers} workers, {self.kills} kills to come; "
            f"all files are in {self.directory}; --seed {self.seed} draws the same mishaps again"
        )
        asyncio.run(self._fulfil_all(world))
        world.close()
        return self._judge()

    async def _fulfil_all(self, world: World) -> None:
        url = f"sqlite:///{self.ledger.absolute()}"
        environment = {LEDGER_VARIABLE: url, FILE_VARIABLE: str(self.outside.absolute())}
        async with connect(url) as client:
            with Crew(self.workers, environment, self.directory / "workers.log") as crew:
                helpers = [
                    asyncio.create_task(crew.strike(self.kills, random.Random(self.seed))),
                    asyncio.create_task(self._dispatch(client, DispatchBoard(world))),
                    asyncio.create_task(self._watch(world, crew)),
                ]
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        await asyncio.gather(*(self._follow(client, *arrival) for arrival in self._arrivals()))
                        await helpers[0]  # every kill that was announced is done, however fast the orders were
                except TimeoutError:
                    self.console.print(f"[red]not done after {PATIENCE_S:.0f} s")
                for helper in helpers:
                    helper.cancel()
                await asyncio.gather(*helpers, return_exceptions=True)
            await self._tell(client, DispatchBoard(world))

    def _arrivals(self) -> Iterable[tuple[Order, float]]:
        """Each order and the second at which it comes in: evenly, but for some dice."""
        dice = random.Random(self.seed)
        for number, order in enumerate(self.orders):
            yield order, (number + dice.random()) / ARRIVALS_PER_S

    async def _follow(self, client: Client, order: Order, arrives_s: float) -> None:
        await asyncio.sleep(arrives_s)
        handle = await client.start_workflow(FulfilOrder, order, DISPATCH_WITHIN, id=order.workflow_id)
        self.progress.started += 1
        try:
            self.progress.ended[order.order_id] = await handle.result()
        except errors.WorkflowFailedError as error:
            self.progress.ended[order.order_id] = error.status
        except errors.RunBlockedError:
            self.progress.ended[order.order_id] = "blocked"

    async def _dispatch(self, client: Client, board: DispatchBoard) -> None:
        """The dispatch board's people: hand over what is due, then tell the shop."""
        while True:
            board.dispatch_due(time.time())
            await self._tell(client, board)
            await asyncio.sleep(TICK_S)

    async def _tell(self, client: Client, board: DispatchBoard) -> None:
        for order_id in board.untold():
            handle = client.get_workflow_handle(f"order-{order_id}")
            # Closed: past its deadline, the run has asked the board by itself and knows.
            with contextlib.suppress(errors.RunClosedError):
                # Told again after a crash in between, the shop recognises the message by its id.
                await handle.signal(FulfilOrder.dispatched, message_id=f"dispatched-{order_id}")
            board.note_told(order_id)

    async def _watch(self, world: World, crew: Crew) -> None:
        with Screen(self.console, self.progress) as screen:
            while True:
                self.progress.kills = crew.kills
                self.progress.requests = world.answered()
                screen.draw()
                await asyncio.sleep(TICK_S)

    def _judge(self) -> bool:
        truth = Truth.read(self.outside)
        checks = reconcile([order.order_id for order in self.orders], self.progress.ended, truth)
        print_calls(self.console, truth)
        print_endings(self.console, self.progress.ended)
        print_verdict(self.console, checks)
        return not any(check.offenders for check in checks)


def main(
    *,
    orders: Annotated[int, typer.Option(help="How many of the 830 orders come in.")] = 830,
    workers: Annotated[int, typer.Option(help="Worker processes.")] = 3,
    kills: Annotated[int, typer.Option(help="How many of them are killed with SIGKILL in all.")] = 12,
    seed: Annotated[int | None, typer.Option(help="Draws the outside's mishaps; chosen anew by default.")] = None,
    directory: Annotated[Path, typer.Option(help="Emptied, then holds the two databases.")] = Path("build/demo"),
) -> None:
    """Fulfil orders while workers are killed, then reconcile the ledger with the outside world."""
    chosen = random.randrange(1_000_000) if seed is None else seed
    demo = Demo(directory, load_orders()[:orders], chosen, workers, kills, Console())
    raise typer.Exit(0 if demo.run() else 1)


if __name__ == "__main__":
    typer.run(main)
