"""Work spread over all cores, in processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

Job = TypeVar("Job")
T = TypeVar("T")


def spread(work: Callable[[Job], T], jobs: Sequence[Job]) -> Iterator[T]:
    """What each job gives, in the order in which they end. `work` is a function of a module.

    Processes are new ones and not forks: what one job patches or loads is in no other's way. They last as long as there
    are jobs: with max_tasks_per_child, Python 3.11 may wait for ever once one is to be replaced.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for done in as_completed([pool.submit(work, job) for job in jobs]):
            yield done.result()
