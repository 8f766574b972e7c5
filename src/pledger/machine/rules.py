"""Why calls are refused in workflow code, and what to do instead.

One set of words for the guards, which stop a call while the code runs, and for `lint`, which finds it before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Rule:
    """Why a call is refused in workflow code, and what to do instead."""

    reason: str
    remedy: str


DIFFERS: Final = "its answer differs on replay"
OUTSIDE: Final = "it reaches outside of the run, and a replay would do it again"
CLOCK: Final = Rule(DIFFERS, "workflow.time()")
CALENDAR: Final = Rule(DIFFERS, "workflow.now()")
CHANCE: Final = Rule(DIFFERS, "workflow.random()")
ID: Final = Rule(DIFFERS, "workflow.uuid4()")
ENTROPY: Final = Rule(DIFFERS, "workflow.random() or workflow.uuid4()")
EFFECT: Final = Rule(OUTSIDE, "do it in an activity")
SLEEP: Final = Rule("it stops every run of this worker", "await asyncio.sleep()")
THREAD: Final = Rule(
    "no replay repeats the order in which threads run", "asyncio.create_task(), or do it in an activity"
)
AS_COMPLETED: Final = Rule(
    "it starts coroutines in the order of a set, which differs on replay", "workflow.as_completed()"
)

#: Clocks that take no argument. They are called often outside of workflow code, so their replacement is the quickest.
CLOCKS: Final = tuple(
    f"{clock}{unit}"
    for clock in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
)
#: Functions that read the clock unless they are given a time, and the position of that argument.
CLOCK_BY_DEFAULT: Final = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
