"""830 real orders, three workers on one ledger, one SIGKILL a second or so, and a reconciliation at the end.

    make demo        or        make demo STORE=postgres        or        python -m examples.orders.demo --help

The ledger is a SQLite file; or it is on a PostgreSQL server, with four workers, and that is restarted too.

This process starts the orders, plays the dispatch board's people, kills workers, and watches; it runs no workflow code.
It ends with exit code 1 when the ledger and the outside world disagree about any order.
"""

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from examples.orders.crew import Crew
from examples.orders.ground import Ground, Store, prepare
from examples.orders.orders import Order, load_never_shipped, load_orders, opening_stock
from examples.orders.outside import FILE_VARIABLE, DispatchBoard, Temper, World
from examples.orders.reconcile import Truth, reconcile
from examples.orders.screen import Progress, Screen, judge, print_calls, print_endings
from examples.orders.worker import LEDGER_VARIABLE
from examples.orders.workflow import FulfilOrder
from pledger import Client, connect, errors

#: Orders that come in per second: slowly enough that every kill hits a worker in the middle of something.
ARRIVALS_PER_S = 70

#: How long a booked parcel may wait. Longer than a courier takes and a dead worker's runs lie idle, so that only the 21
#: orders for which no courier ever came run into it.
DISPATCH_WITHIN = timedelta(seconds=10)

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
    restarts: int
    ground: Ground
    console: Console
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = Progress(len(self.orders))

    @property
    def outside(self) -> Path:
        return self.directory.absolute() / "outside.db"

    def run(self) -> bool:
        """Whether ledger and outside world agree."""
        never_shipped = load_never_shipped()
        self.console.print(
            f"{len(self.orders)} orders, {self.workers} workers, {self._to_come()} to come; everything is in "
            f"{self.directory}; --seed {self.seed} draws the outside's mishaps again",
            soft_wrap=True,
        )
        stock = opening_stock(self.orders)
        with closing(World.create(self.outside, stock, no_shows=never_shipped, temper=Temper(self.seed))) as world:
            deserters = asyncio.run(self._fulfil_all(world))
        if deserters:
            self.console.print(f"[red]{deserters} workers ended by themselves; workers.log says why")
        return self._judge(asyncio.run(self._read_ledger())) and not deserters

    def _to_come(self) -> str:
        kills = f"{self.kills} kills"
        return f"{kills} and {self.restarts} restarts of the server" if self.restarts else kills

    async def _fulfil_all(self, world: World) -> int:
        """Until every order has ended and every kill is done. How many workers ended without being killed."""
        environment = {LEDGER_VARIABLE: self.ground.url, FILE_VARIABLE: str(self.outside)}
        board = DispatchBoard(world)
        async with connect(self.ground.url) as client:
            with Crew(self.workers, environment, self.directory / "workers.log") as crew:
                async with asyncio.TaskGroup() as helpers:
                    strikes = asyncio.gather(
                        crew.strike(self.kills, random.Random(self.seed)),
                        self.ground.shake(self.restarts, random.Random(self.seed + 1)),
                    )
                    endless = [
                        helpers.create_task(self._dispatch(client, board)),
                        helpers.create_task(self._watch(world, crew)),
                    ]
                    await self._all_ended(client, strikes)
                    strikes.cancel()
                    for helper in endless:
                        helper.cancel()
            await self._tell(client, board)
        return crew.deserters

    async def _all_ended(self, client: Client, strikes: asyncio.Future[Any]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(self._follow(client, *arrival) for arrival in self._arrivals()))
                await asyncio.shield(strikes)
        except TimeoutError:
            self.console.print(f"[red]not done after {PATIENCE_S:.0f} s")

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
        except errors.RunBlockedError as error:
            # A bug: the run stays open, and the reconciliation will say that it has not ended.
            self.console.print(f"[red]{order.workflow_id} is blocked[/red]\n{error}", soft_wrap=True)

    async def _dispatch(self, client: Client, board: DispatchBoard) -> None:
        """The dispatch board's people: hand over what is due, then tell the shop."""
        while True:
            board.dispatch_due(time.time())
            await self._tell(client, board)
            await asyncio.sleep(TICK_S)

    async def _tell(self, client: Client, board: DispatchBoard) -> None:
        for order_id in board.untold():
            handle = client.handle(f"order-{order_id}", workflow=FulfilOrder)
            # Closed: past its deadline, the run has asked the board by itself and knows.
            with contextlib.suppress(errors.RunClosedError):
                # Told again after a crash in between, the shop recognises the message by its id.
                await handle.signal(FulfilOrder.dispatched, message_id=f"dispatched-{order_id}")
            board.note_told(order_id)

    async def _watch(self, world: World, crew: Crew) -> None:
        with Screen(self.console, self.progress) as screen:
            while True:
                crew.replace_deserters()
                self.progress.kills = crew.kills
                self.progress.restarts = None if self.ground.server is None else self.ground.restarts
                self.progress.requests = world.answered()
                screen.draw()
                await asyncio.sleep(TICK_S)

    async def _read_ledger(self) -> dict[int, str]:
        """What a reader finds who comes when all is over, whatever was reported meanwhile."""
        found: dict[int, str] = {}
        async with connect(self.ground.url) as client:
            async for run in client.list():
                handle = client.handle(run.workflow_id, run_id=run.run_id, workflow=FulfilOrder)
                order_id = int(run.workflow_id.removeprefix("order-"))
                found[order_id] = await handle.result() if run.status == "completed" else run.status
        return found

    def _judge(self, ledger: dict[int, str]) -> bool:
        truth = Truth.read(self.outside)
        print_calls(self.console, truth)
        print_endings(self.console, ledger)
        due_cents = {order.order_id: order.amount_cents for order in self.orders}
        return judge(self.console, reconcile(due_cents, ledger, truth, told=self.progress.ended))


def main(
    *,
    orders: Annotated[int, typer.Option(help="How many of the 830 orders come in.")] = 830,
    store: Annotated[Store, typer.Option(help="Where the ledger lies.")] = "sqlite",
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; 3, or 4 on a server.", show_default=False)
    ] = None,
    kills: Annotated[int, typer.Option(help="How many of them are killed with SIGKILL in all.")] = 12,
    restarts: Annotated[int, typer.Option(help="How often the server is restarted, half of them as in a crash.")] = 3,
    seed: Annotated[int | None, typer.Option(help="Draws the outside's mishaps; chosen anew by default.")] = None,
    directory: Annotated[Path, typer.Option(help="Where the databases and the log go.")] = Path("build/demo"),
) -> None:
    """Fulfil orders while workers are killed, then reconcile the ledger with the outside world."""
    chosen = random.randrange(1_000_000) if seed is None else seed
    # Where it is no terminal, Rich assumes 80 columns; the tables need a few more.
    console = Console() if sys.stdout.isatty() else Console(width=110)
    directory.mkdir(parents=True, exist_ok=True)
    for old in (*directory.glob("*.db*"), *directory.glob("*.log")):
        old.unlink()
    with prepare(store, directory) as ground:
        crew = workers or (3 if ground.server is None else 4)
        shaken = 0 if ground.server is None else restarts
        demo = Demo(directory, load_orders()[:orders], chosen, crew, kills, shaken, ground, console)
        ended_well = demo.run()
    raise typer.Exit(0 if ended_well else 1)


if __name__ == "__main__":
    typer.run(main)
