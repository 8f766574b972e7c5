"""The worker: a process (or a part of one) that runs workflows and activities of one task queue."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pledger.client import Client
from pledger.engine.bounds import bounds_of
from pledger.engine.limits import Limits
from pledger.errors import InvalidPolicyError, UsageError
from pledger.history.names import check_id
from pledger.history.placement import Limit
from pledger.history.retry import is_whole
from pledger.history.times import check_duration, milliseconds
from pledger.interceptors import Interceptor, checked, of_activities, of_workflows
from pledger.machine import guards
from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition
from pledger.version import __version__

if TYPE_CHECKING:
    from pledger.engine.engine import Engine
    from pledger.engine.secrets import SecretResolver
    from pledger.engine.session import Heart

__all__ = ["Worker"]

logger = logging.getLogger("pledger.worker")


class Worker:
    """Runs workflows and activities while its `async with` block is open, or until `run()` is told to stop.

    workflows: functions or classes decorated with `@workflow.defn`. activities: decorated with `@activity.defn`.
    task_queue: only runs and activities of this queue are taken.
    max_concurrent_activities: attempts at a time; further activities wait in the store, for this worker or another.
    max_activity_threads: plain (not async) activities at a time. transactions: the databases of activities that are
    defined with `transaction=`, by name: the URL of the ledger's own, perhaps as another user; None for the ledger's
    user. max_transactions: such attempts at a time, each with a connection. max_cached_runs: runs kept in memory; a run
    beyond that leaves and comes back by replay. lease: a worker silent for this long is taken for dead and others take
    over. grace: how long running activities may go on at shutdown. build_id: the identity of this code in the
    histories; by default computed from the sources of the workflows and what they import.
    verify: the share of finished runs that is replayed and compared. deadlock_timeout: workflow code that does not wait
    for so long is interrupted and its run blocked; None: never.
    max_history_events, max_history_bytes: a run at such a bound is parked with its state intact.
    payload_bytes_max: of one value; None for that of the client.
    queue_limits: what all activities of the queue must not exceed over all workers of it; each of these workers has to
    state them.
    paused: pause the namespace, unless it is, before anything is taken: after an incident. See `Client.resume`.
    retention: how long finished runs of its workflows are kept where those say nothing else; timedelta.max: for ever.
    secrets: where the values of the secrets come from that its activities declare, asked in this order:
    `EnvironmentSecrets()`, `FileSecrets("/run/secrets")`, `CommandSecrets(["pass", "show"])`, or one of your own.
    Raises UsageError for what is no definition, or two of one name; InvalidPolicyError for values out of range.
    """

    def __init__(
        self,
        client: Client,
        *,
        # Any object: a list of definitions that differ in their types is a list[object] to the type checker.
        workflows: Sequence[object] = (),
        activities: Sequence[object] = (),
        task_queue: str = "default",
        max_concurrent_activities: int = 1_000,
        max_activity_threads: int = 64,
        transactions: Mapping[str, str | None] | None = None,
        max_transactions: int = 1,
        max_cached_runs: int = 1_000,
        lease: timedelta = timedelta(seconds=5),
        grace: timedelta = timedelta(seconds=30),
        build_id: str | None = None,
        identity: str | None = None,
        verify: float = 0.01,
        deadlock_timeout: timedelta | None = timedelta(seconds=30),
        payload_bytes_max: int | None = None,
        max_history_events: int = 500_000,
        max_history_bytes: int = 100_000_000,
        paused: bool = False,
        retention: timedelta = timedelta(days=30),
        secrets: Sequence[SecretResolver] = (),
        queue_limits: Sequence[Limit] = (),
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self._client = client
        self._workflows = _by_name((WorkflowDefinition.of(each) for each in workflows), "workflow")
        self._activities = _by_name((_activity(each) for each in activities), "activity")
        if not self._workflows and not self._activities:
            raise UsageError(
                "a worker needs workflows or activities to run; give it workflows=[...] or activities=[...]"
            )
        self._transactions = dict(transactions or {})
        _check_transactions(self._activities, self._transactions)
        self._interceptors = (*client.interceptors, *checked(interceptors, "Worker(interceptors=...)"))
        self._secrets = tuple(secrets)
        _check_secrets(self._activities, self._secrets)
        payload_bytes_max = client.internals.payload_bytes_max if payload_bytes_max is None else payload_bytes_max
        for name, value in (
            ("max_concurrent_activities", max_concurrent_activities),
            ("max_activity_threads", max_activity_threads),
            ("max_transactions", max_transactions),
            ("max_cached_runs", max_cached_runs),
            ("max_history_events", max_history_events),
            ("max_history_bytes", max_history_bytes),
            ("payload_bytes_max", payload_bytes_max),
        ):
            if not (is_whole(value) and value >= 1):
                raise InvalidPolicyError(f"Worker({name}={value!r}) must be at least 1, and a whole number")
        for name, duration in (("lease", lease), ("grace", grace), ("retention", retention)):
            check_duration(duration, f"Worker({name}=...)", or_none="")
        if deadlock_timeout is not None:
            check_duration(deadlock_timeout, "Worker(deadlock_timeout=...)", or_none="None for no limit")
        if lease < timedelta(milliseconds=100):
            raise InvalidPolicyError(f"Worker(lease={lease}) must be at least 0.1 s")
        if retention < timedelta(0):
            raise InvalidPolicyError(f"Worker(retention={retention}) must be 0 or more, or timedelta.max for ever")
        self._grace_s = grace.total_seconds()
        self._task_queue = check_id(task_queue, "Worker(task_queue=...)")
        self._paused = paused
        self._build_id = None if build_id is None else check_id(build_id, "Worker(build_id=...)")
        self._identity = check_id(identity or f"{os.getpid()}@{socket.gethostname()}", "Worker(identity=...)")
        self._deadlock_s = deadlock_timeout.total_seconds() if deadlock_timeout is not None else 0.0
        self._limits = Limits(
            concurrent_activities_max=max_concurrent_activities,
            activity_threads_max=max_activity_threads,
            transactions_max=max_transactions,
            cached_runs_max=max_cached_runs,
            lease_ms=milliseconds(lease),
            payload_bytes_max=payload_bytes_max,
            history_events_max=max_history_events,
            history_bytes_max=max_history_bytes,
            verified_share=verify,
            retention_ms=None if retention == timedelta.max else milliseconds(retention),
        )
        self._queue_limits = tuple(queue_limits)
        bounds_of(self._activities.values(), self._queue_limits)  # what cannot be is told at once
        self._engine: Engine | None = None
        self._stop = asyncio.Event()

    async def __aenter__(self) -> Self:
        # The engine is loaded with the first worker: many programs only define workflows, or are clients.
        import random  # noqa: PLC0415

        from pledger.engine.code_identity import code_identity, user_modules  # noqa: PLC0415
        from pledger.engine.engine import Engine  # noqa: PLC0415
        from pledger.engine.watchdog import Watchdog  # noqa: PLC0415

        targets = [each.target for each in self._workflows.values()]
        guards.install(user_modules(targets))
        codes = {
            name: self._build_id or code_identity([each.target], version=__version__)
            for name, each in self._workflows.items()
        }
        self._engine = Engine(
            self._client.internals,
            workflows=self._workflows.values(),
            activities=self._activities.values(),
            task_queue=self._task_queue,
            code=self._build_id or code_identity(targets, version=__version__),
            codes=codes,
            identity=self._identity,
            limits=self._limits,
            heart=self._new_heart(),
            watchdog=Watchdog(warn_s=min(2.0, self._deadlock_s or 2.0), limit_s=self._deadlock_s),
            transactions=self._transactions,
            secrets=self._secrets,
            randomness=random.Random(self._client.internals.entropy(16)),  # noqa: S311 - jitter and samples
            queue_limits=self._queue_limits,
            around_activities=of_activities(self._interceptors),
            around_workflows=of_workflows(self._interceptors),
        )
        if self._paused:
            await self._pause()
        await self._engine.start()
        return self

    async def _pause(self) -> None:
        """One that is being lifted is let alone: a worker that starts does not undo what a person has begun."""
        places = [each for each in await self._client.pauses() if each.kind == "namespace"]
        if not places:
            reason = f"worker {self._identity} was started paused"
            places = [await self._client.pause("namespace", reason=reason, by=self._identity)]
        logger.warning(
            "namespace %r is paused by %s since %s (%s): nothing goes on until `pledger resume namespace`",
            places[0].name,
            places[0].paused_by,
            places[0].since.isoformat(timespec="seconds"),
            places[0].reason,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.stop(self._grace_s)

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT (where this is the main thread) or `shutdown()`, then stop gracefully.

        A second signal while the grace period runs stops at once.
        """
        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as stack:
            for number in (signal.SIGTERM, signal.SIGINT):
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, self._signalled)
                    stack.callback(loop.remove_signal_handler, number)
            async with self:
                await self._stop.wait()

    def shutdown(self) -> None:
        """Have `run()` stop gracefully."""
        self._stop.set()

    def _signalled(self) -> None:
        if self._stop.is_set():
            os._exit(1)
        logger.info("stopping; running activities have %g s, and a second signal stops at once", self._grace_s)
        self._stop.set()

    def _new_heart(self) -> Heart:
        from pledger.engine.session import ThreadHeart  # noqa: PLC0415 - as above

        return ThreadHeart()


def _check_transactions(
    activities: Mapping[str, ActivityDefinition[Any, Any]], known: Mapping[str, str | None]
) -> None:
    """Raises UsageError for an activity whose transaction this worker does not know."""
    for name, definition in activities.items():
        wanted = definition.transaction
        if wanted is not None and wanted not in known:
            names = ", ".join(map(repr, sorted(known))) or "none"
            raise UsageError(
                f"activity {name!r} runs in the transaction {wanted!r}, and this worker knows {names}. Give it "
                f"Worker(transactions={{{wanted!r}: url}}), with the URL of the ledger's own database, or None for the "
                "ledger's own user"
            )


def _activity(found: object) -> ActivityDefinition[Any, Any]:
    if not isinstance(found, ActivityDefinition):
        raise UsageError(f"{found!r} is not an activity: decorate it with @activity.defn")
    return found


def _check_secrets(activities: Mapping[str, ActivityDefinition[Any, Any]], resolvers: Sequence[object]) -> None:
    for name, definition in activities.items():
        if definition.secrets and not resolvers:
            raise UsageError(
                f"activity {name!r} declares secrets ({', '.join(definition.secrets)}), and the worker has nowhere to "
                "get them from; give it secrets=[EnvironmentSecrets()], FileSecrets or CommandSecrets"
            )


def _by_name(definitions: Iterable[Any], kind: str) -> dict[str, Any]:
    by_name: dict[str, Any] = {}
    for definition in definitions:
        if definition.name in by_name:
            raise UsageError(f"two definitions of the {kind} {definition.name!r}; give one another name")
        by_name[definition.name] = definition
    return by_name
