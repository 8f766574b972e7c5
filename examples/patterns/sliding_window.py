"""A batch with a sliding window: so many records at a time, and the next one as soon as any of them is done.

    python -m examples.patterns.sliding_window

Each record is a child, which may take its time and have steps of its own. It outlives the run that has started it, and
reports to the *chain*: so the batch can continue as new in the midst of it, with children in flight, and its history
stays short over millions of records. The id of a child is that of the batch with the number of its record, so none is
ever worked on twice. Where the batch is, which records failed and which were lost are in its arguments.
"""

import asyncio
import sys
from dataclasses import dataclass, field
from datetime import timedelta

from pledger import Worker, activity, connect, errors, workflow
from pledger.workflow import ParentClosePolicy

#: The worst of the present records.
POISON = 13


@activity.defn
async def convert(record: int) -> None:
    if record == POISON:
        raise errors.ApplicationError("not in our format", type="Malformed", non_retryable=True)


@workflow.defn
async def process(record: int, batch_id: str) -> None:
    """One record. Whatever comes of it, the batch hears of it."""
    reason = ""
    try:
        await convert(record)
    except errors.ActivityError as error:
        reason = str(error.__cause__)
    await workflow.get_external_workflow_handle(batch_id).signal(Batch.report, record, reason)


@dataclass
class Work:
    """All that a successor has to know. window: how many records at a time. patience: so long without any report, and
    what is in flight is written off: somebody has terminated it, say.

    next: the first record that is not begun. in_flight: those that are begun and have not reported. failed: why.
    """

    records: int
    window: int
    patience: timedelta
    next: int = 0
    in_flight: list[int] = field(default_factory=list)
    done: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)


@workflow.defn
class Batch:
    @workflow.init
    def __init__(self, work: Work) -> None:
        self.work = work

    @workflow.run
    async def run(self, work: Work) -> Work:
        own_id = workflow.info().workflow_id
        while work.next < work.records or work.in_flight:
            # Not `checkpoint`, which waits for a moment without children: in a window that slides there is none.
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(work)
            if work.next < work.records and len(work.in_flight) < work.window:
                record, work.next = work.next, work.next + 1
                work.in_flight.append(record)
                await workflow.start_child_workflow(
                    process, record, own_id, id=f"{own_id}.{record}", parent_close_policy=ParentClosePolicy.ABANDON
                )
            else:
                await self.report_of_any(len(work.in_flight))
        return work

    async def report_of_any(self, now: int) -> None:
        try:
            await workflow.wait_condition(lambda: len(self.work.in_flight) < now, timeout=self.work.patience)
        except TimeoutError:
            self.work.lost += self.work.in_flight
            self.work.in_flight = []

    @workflow.signal
    def report(self, record: int, reason: str) -> None:
        waits_for_it = self.work.in_flight if record in self.work.in_flight else self.work.lost  # or it was only slow
        waits_for_it.remove(record)
        if reason:
            self.work.failed[record] = reason
        else:
            self.work.done += 1

    @workflow.query
    def so_far(self) -> Work:
        return self.work


WORKFLOWS = [Batch, process]
ACTIVITIES = [convert]


async def main(url: str) -> None:
    async with (
        connect(url) as client,
        # So that it rolls over within forty records, and not within a hundred thousand.
        Worker(client, workflows=WORKFLOWS, activities=ACTIVITIES, max_history_events=200),
    ):
        batch = await client.start_workflow(Batch, Work(40, 4, timedelta(hours=1)), id="batch")
        work: Work = await batch.result()
        print(f"{work.done} done, {len(work.lost)} lost, failed: {work.failed}")
        runs = [run async for run in client.list("workflow_id = 'batch'")]
        print("one run" if len(runs) == 1 else "a chain of runs, each with a short history")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory://"))
