"""The loop whose clock jumps when everybody waits."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from pledger.testing import JumpingLoop


class LateExecutor(ThreadPoolExecutor):
    """It ends when the loop has begun to wait for it, and somewhat later."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        threading.Event().wait(0.02)  # of real time: a thread's is no other
        super().shutdown(wait, cancel_futures=cancel_futures)


def test_it_waits_for_its_threads_at_the_end() -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        loop = runner.get_loop()
        loop.set_default_executor(LateExecutor(1))
        assert runner.run(asyncio.to_thread(lambda: "done")) == "done"
