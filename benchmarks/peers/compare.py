"""One run of the comparison: every engine on every workload, as often as asked, in turns."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from benchmarks import machine
from benchmarks.ground import Server
from benchmarks.load import wait_until_quiet
from benchmarks.peers import counting, runner
from benchmarks.peers.catalogue import Peer
from benchmarks.peers.install import Installed, InstallError, install
from benchmarks.peers.results import Comparison, Measured, Terms
from benchmarks.peers.runner import Harness, TaskError
from pledger.errors import UsageError
from pledger.testing.postgres import postgres_server

#: Said of a workload that was not tried.
NOT_THERE: Final = "not installed"


@dataclass(frozen=True, slots=True)
class Plan:
    """done: told of every workload of an engine as soon as it is measured, with how far all is."""

    peers: Sequence[Peer]
    workloads: Sequence[str]
    repeats: int
    quick: bool
    patience_s: float
    done: Callable[[Measured], None]

    @property
    def tasks(self) -> int:
        """For a progress bar: installations with counting, and repeats."""
        return len(self.peers) * (1 + len(self.workloads) * self.repeats)


def compare(plan: Plan, harness: Harness, advance: Callable[[], None]) -> Comparison:
    """advance: called after each of the plan's tasks."""
    started = datetime.now(UTC)
    with ExitStack() as stack:
        harness = _with_postgres(plan, harness, stack)
        found: dict[str, Installed] = {}
        terms = []
        for peer in plan.peers:
            terms.append(_terms(peer, replace(harness, say=_about(peer.title, harness)), found))
            advance()
        measured = []
        for workload in plan.workloads:
            measured += _measure(plan, workload, found, harness, advance)
    return Comparison(started, plan.quick, plan.repeats, machine.facts(harness.place), terms, measured)


def _with_postgres(plan: Plan, harness: Harness, stack: ExitStack) -> Harness:
    """With a server, if one is needed and can be had. Those who need one tell its lack. One for all of them."""
    if not any(peer.on_postgres for peer in plan.peers):
        return harness
    _about("PostgreSQL", harness)("starting the server")
    # Not made by tempfile, whose directories nobody else may pass: the server may run as another user.
    directory = harness.place / f"postgres-{secrets.token_hex(4)}"
    try:
        # More connections than DBOS's pools take with many threads, and queries counted; all else is as shipped.
        settings = {"max_connections": "200", "shared_preload_libraries": "pg_stat_statements"}
        server = stack.enter_context(postgres_server(directory, **settings))
    except UsageError as error:
        return replace(harness, postgres_failure=str(error))
    return replace(harness, postgres=Server(server.url.rpartition("/")[0], server.pid))


def _terms(peer: Peer, harness: Harness, found: dict[str, Installed]) -> Terms:
    terms = Terms(peer.name)
    try:
        if peer.on_postgres and harness.postgres is None:
            raise InstallError(harness.postgres_failure)
        installed = install(peer, harness.place, harness.say)
    except InstallError as error:
        terms.failure = str(error)
        return terms
    found[peer.name] = installed
    terms.versions = installed.versions
    terms.python = installed.python_version
    counting.count(peer, installed, harness, terms)
    return terms


def _measure(
    plan: Plan, workload: str, found: dict[str, Installed], harness: Harness, advance: Callable[[], None]
) -> list[Measured]:
    """In turns, so that what disturbs one engine disturbs the others too. Who has failed is not asked again."""
    rows = [Measured(peer.name, workload, peer.size(workload, quick=plan.quick), []) for peer in plan.peers]
    for repeat in range(plan.repeats):
        for peer, row in zip(plan.peers, rows, strict=True):
            if peer.name not in found:
                row.failure = NOT_THERE
            elif workload in peer.unable:
                row.failure = peer.unable[workload]
            if row.failure is None:
                about = _about(f"{workload} {repeat + 1} of {plan.repeats}, {peer.title}", harness)
                about("waiting for a quiet machine")
                wait_until_quiet(plan.patience_s)
                try:
                    values = runner.measure(peer, workload, found[peer.name], replace(harness, say=about), row.size)
                    row.samples.append(values)
                except TaskError as error:
                    row.failure = str(error)
            advance()
    for row in rows:
        plan.done(row)
    return rows


def _about(subject: str, harness: Harness) -> Callable[[str], None]:
    return lambda text: harness.say(f"{subject}: {text}")
