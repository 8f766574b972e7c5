"""The real command line in processes of its own, in a folder with a small project and a SQLite ledger."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pledger

#: The project of these tests. In `fulfil` a line is a place where a later version of the code puts another step.
SHOP: Final = """
import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

from pledger import RetryBudget, RetryPolicy, activity, errors, workflow


class CardTimeout(Exception):
    pass


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=20), maximum_attempts=3))
async def charge_card(order: dict[str, Any]) -> dict[str, Any]:
    if order.get("timeouts", 0) >= activity.info().attempt:
        raise CardTimeout("gateway did not answer")
    activity.logger.info("charged")
    return order


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(hours=1), jitter=0))
def refund_card(order: int) -> None:
    raise CardTimeout("gateway did not answer")


@activity.defn(retry_policy=RetryPolicy(maximum_attempts=1))
def decline(order: int) -> None:
    raise errors.ApplicationError("no money", {"balance": 3}, type="CardDeclined")


@workflow.defn
async def fulfil(order: dict[str, Any]) -> dict[str, Any]:
    # first step
    charged = await charge_card(order)
    await asyncio.sleep(order.get("sleep", 0))
    return charged


@activity.defn(retry_budget=RetryBudget("courier-api"))
async def book_courier(order: int) -> int:
    return order


@workflow.defn
async def ship(order: int) -> int:
    return await book_courier(order)


@workflow.defn
async def refund(order: int) -> None:
    await refund_card(order)


@workflow.defn
async def refuse(order: int) -> None:
    await decline(order)


@workflow.defn
async def buggy(number: int) -> float:
    return number / 0


@workflow.defn
class Approval:
    def __init__(self) -> None:
        self.approved: Decimal | None = None

    @workflow.signal
    def approve(self, amount: Decimal) -> None:
        self.approved = amount

    @workflow.query
    def amount(self) -> Decimal | None:
        return self.approved

    @workflow.query
    def broken(self) -> None:
        raise ValueError("no answer")

    @workflow.run
    async def run(self) -> Decimal:
        workflow.publish("steps", "asked")
        await workflow.wait_condition(lambda: self.approved is not None)
        workflow.publish("steps", ["approved", str(self.approved)])
        return self.approved


@workflow.defn
async def slow_to_stop() -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(0.1)
        raise
    return "slept"


@workflow.defn
async def stubborn() -> str:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return "awake"
    return "slept"
"""

#: How long anything here may take; nothing does, but on a machine that is busy with other tests.
PATIENCE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer as strict JSON, with its decimals as they stand there."""
        return json.loads(self.out, parse_float=Decimal, parse_constant=_refuse)

    @property
    def error(self) -> dict[str, Any]:
        """The error object on stderr, which is all there is."""
        assert self.out == ""
        document = json.loads(self.err, parse_constant=_refuse)
        assert set(document) == {"error"}
        error: dict[str, Any] = document["error"]
        assert error["exit_code"] == self.code
        return error


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


class Project:
    """A working directory with `shop.py`, whose ledger the commands find by PLEDGER_URL."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.url = "sqlite:///ledger.db"
        self.write("shop.py", SHOP)

    @property
    def ledger(self) -> Path:
        return self.directory / "ledger.db"

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        return path

    def pledger(self, *arguments: str, code: int = 0, stdin: str = "", **environment: str) -> Ended:
        """Run a command to its end. code: the exit code that it must have."""
        ended = subprocess.run(
            self.command(*arguments),
            cwd=self.directory,
            env=self.environment(**environment),
            input=stdin,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == code, (
            f"pledger {arguments} ended with {ended.returncode}\n{ended.stdout}{ended.stderr}"
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    @contextlib.contextmanager
    def worker(self, *arguments: str, target: str = "shop") -> Iterator[WorkerProcess]:
        """A worker that is ready; at the end it is asked to stop, and must do so gracefully."""
        process = WorkerProcess(self, ["worker", target, *arguments])
        try:
            process.wait_for("task queue")
            yield process
            if process.popen.poll() is None:
                assert process.stop(signal.SIGTERM) == 0, process.log
        finally:
            process.popen.kill()
            process.popen.wait()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pledger", *arguments]

    def environment(self, **changes: str) -> dict[str, str]:
        # Found also where it is not installed; and no terminal's size or colours come in from the tests' own.
        source = str(Path(pledger.__file__).parents[1])
        own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR", "NO_COLOR")}
        return {**own, "PYTHONPATH": source, "PLEDGER_URL": self.url, "TZ": "UTC", **changes}


class WorkerProcess:
    """A running `pledger worker`. log: what it has written so far, stdout and stderr together."""

    def __init__(self, project: Project, arguments: Sequence[str]) -> None:
        self.log = ""
        self._grown = threading.Condition()
        self.popen = subprocess.Popen(
            project.command(*arguments),
            cwd=project.directory,
            env=project.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str) -> None:
        """Until the log has it."""
        with self._grown:
            assert self._grown.wait_for(lambda: text in self.log, PATIENCE_S), f"no {text!r} in:\n{self.log}"

    def stop(self, number: int) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.popen.send_signal(number)
        code = self.popen.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout:
            for line in self.popen.stdout:
                with self._grown:
                    self.log += line
                    self._grown.notify_all()
