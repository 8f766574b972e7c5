"""A mutex between runs: a workflow that is the lock, and hands it to one run after another.

    python -m examples.patterns.mutex

Within one run `asyncio.Lock` does. Between runs the lock is a run of its own, whose id is its name. Who wants it sends
a request; it answers with a grant; both are messages, which arrive exactly once and in order, and are there after any
crash. A holder that is lost (terminated, blocked by a bug) lets everybody wait for no longer than its lease.

A lease is a promise about time, and the holder may be slow rather than lost. So each grant has a *fence*, a number
higher than all before it, which goes along with what the holder asks of the outside: the printer here refuses whoever
comes with a lower one than it has seen.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

from pledger import Worker, activity, connect, errors, workflow

# The lock -------------------------------------------------------------------------------------------------------------


@dataclass
class Request:
    request_id: str
    holder_id: str
    lease: timedelta


@dataclass
class Queue:
    """All that a successor has to know. fence: of the last grant. is_closing: it ends when nobody waits any more."""

    fence: int = 0
    waiting: list[Request] = field(default_factory=list)
    is_closing: bool = False


@workflow.defn
class Lock:
    @workflow.init
    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.holder: Request | None = None

    @workflow.run
    async def run(self, queue: Queue) -> int:
        """How often it was granted."""
        while True:
            await workflow.wait_condition(lambda: bool(queue.waiting) or queue.is_closing, name="a request")
            if not queue.waiting:
                return queue.fence
            self.holder = queue.waiting.pop(0)
            queue.fence += 1
            await self.grant(self.holder)
            self.holder = None
            workflow.checkpoint(queue)

    async def grant(self, request: Request) -> None:
        """Until it is given back, or its lease is over."""
        holder = workflow.get_external_workflow_handle(request.holder_id)
        with contextlib.suppress(errors.ExternalWorkflowError, TimeoutError):  # it has ended while it waited
            await holder.signal(Holder.granted, request.request_id, self.queue.fence)
            await workflow.wait_condition(
                lambda: self.holder is None, timeout=request.lease, name="its return", owner=request.holder_id
            )

    @workflow.signal
    def acquire(self, request: Request) -> None:
        self.queue.waiting.append(request)

    @workflow.signal
    def release(self, request_id: str) -> None:
        """By whoever holds it, or no longer waits for it. One whose lease is over releases nothing any more."""
        self.queue.waiting = [each for each in self.queue.waiting if each.request_id != request_id]
        if self.holder is not None and self.holder.request_id == request_id:
            self.holder = None

    @workflow.signal
    def close(self) -> None:
        self.queue.is_closing = True

    @workflow.query
    def waiting(self) -> list[str]:
        return [each.holder_id for each in self.queue.waiting]


# Its holders ----------------------------------------------------------------------------------------------------------


class Holder:
    """What a workflow needs in order to hold locks: derive it from this."""

    def __init__(self) -> None:
        self.grants: dict[str, int] = {}

    @workflow.signal
    def granted(self, request_id: str, fence: int) -> None:
        self.grants[request_id] = fence

    @contextlib.asynccontextmanager
    async def holding(self, name: str, lease: timedelta) -> AsyncIterator[int]:
        """The block has the lock, as long as its lease is not over; it is given the fence."""
        lock = workflow.get_external_workflow_handle(name)
        request = Request(str(workflow.uuid4()), workflow.info().workflow_id, lease)
        try:
            await lock.signal(Lock.acquire, request)
            await workflow.wait_condition(lambda: request.request_id in self.grants, name=f"lock {name}")
            yield self.grants.pop(request.request_id)
        finally:
            with contextlib.suppress(errors.ExternalWorkflowError):  # the lock has ended
                await workflow.shield(lock.signal(Lock.release, request.request_id))


# A printer that many share --------------------------------------------------------------------------------------------


class Printer:
    """pages: what came out, each with its fence."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.fence = 0
        self.pages: list[tuple[int, str]] = []

    def print(self, fence: int, page: str) -> None:
        if fence < self.fence:
            raise errors.ApplicationError(f"fence {fence} is out of date", type="Fenced", non_retryable=True)
        self.fence = fence
        if (fence, page) not in self.pages:  # an attempt that is made again prints nothing again
            self.pages.append((fence, page))


printer = Printer()


@activity.defn
async def print_page(fence: int, page: str) -> None:
    printer.print(fence, page)


@workflow.defn
class Job(Holder):
    def __init__(self) -> None:
        super().__init__()
        self.is_jammed = False

    @workflow.run
    async def run(self, lock: str, lease: timedelta, pages: int, jams_at: int = 0) -> str:
        """jams_at: after this page it stands still, with the lock in its hands."""
        name = workflow.info().workflow_id
        try:
            async with self.holding(lock, lease) as fence:
                for page in range(1, pages + 1):
                    await print_page(fence, f"{name} page {page}")
                    self.is_jammed = page == jams_at
                    await workflow.wait_condition(lambda: not self.is_jammed)
        except errors.ActivityError as error:
            return f"{name} is stopped: {error.__cause__}"
        return f"{name} is printed"

    @workflow.signal
    def go_on(self) -> None:
        self.is_jammed = False


WORKFLOWS = [Lock, Job]
ACTIVITIES = [print_page]


async def main(url: str) -> None:
    printer.clear()
    hour, moment = timedelta(hours=1), timedelta(milliseconds=200)
    async with connect(url) as client, Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES):
        lock = await client.start_workflow(Lock, Queue(), id="printer")
        lost = await client.start_workflow(Job, "printer", moment, 2, 1, id="lost")
        await until_printed(1)
        await lost.terminate("it happens")
        slow = await client.start_workflow(Job, "printer", moment, 2, 1, id="slow")
        await until_printed(2)
        quick = await client.start_workflow(Job, "printer", hour, 2, id="quick")
        print(await quick.result())
        await slow.signal(Job.go_on)
        print(await slow.result())
        for fence, page in printer.pages:
            print(f"  fence {fence}: {page}")
        await lock.signal(Lock.close)
        print(f"granted {await lock.result()} times")


async def until_printed(pages: int) -> None:
    while len(printer.pages) < pages:  # noqa: ASYNC110 - a printer does not tell
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
