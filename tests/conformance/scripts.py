"""Scripts of verbs that a seed draws, for every store alike: see `differential.py`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pledger.engine.port.filters import Attribute
from pledger.engine.port.operations import IdConflictPolicy, IdReusePolicy
from pledger.engine.port.pauses import PAUSE_KINDS
from pledger.history.placement import Placement
from tests.conformance.harness import LEASE_MS

#: What to do, and with what.
Step: TypeAlias = tuple[Any, ...]

# What is drawn --------------------------------------------------------------------------------------------------------

#: Few, so that they meet; and such as a careless store would trip over.
IDS: Final = ("order-1", "ørder 'two'", 'a "b" {c}, NULL \\ %s $1 \x01\n', "🎉e\u0301", " ", "ORDER-1", "x" * 600)
TYPES: Final = ("fulfil", "refund; --", "ﬁ\u200d")
QUEUES: Final = ("default", "gpu'")
NAMESPACES: Final = ("default", "other")
CODES: Final = ("code-1", "code-2", "Code-2")
BODIES: Final = (b"", b"[1]", bytes(range(256)), b"\x00")
STATUSES: Final = ("completed", "failed", "cancelled", "timed_out", "continued_as_new")
ACTIVITIES: Final = ("charge", "ship 'it'")
PLACES: Final = (
    *(None, None, None),
    Placement(priority=2),
    Placement(fairness_key="ada 'a'", fairness_weight=2.0),
    Placement(limits=(("api", ""),)),
    Placement(priority=4, fairness_key="bob", limits=(("api", ""), ("customer", "ørder"))),
)
HALF: Final = 0.5


class Dice(random.Random):
    """Draws steps. A number picks the run, the session or the row at that place, counted round."""

    def number(self) -> int:
        return self.randrange(6)

    def off(self) -> int:
        """By how much a fence, an event or an attempt is not the right one: mostly it is."""
        return self.choice((0, 0, 0, 0, 0, 0, 0, -1, 1))

    def due(self) -> int | None:
        return self.choice((None, 0, 0, -1, 1, 20))

    def some(self, draw: Callable[[], Any], most: int = 2) -> list[Any]:
        return [draw() for _ in range(self.choice((0, 0, self.randint(1, most))))]

    def task(self) -> Step:
        """Event, state, attempt, activity, queue, due in, expires in, body, place."""
        return (
            self.randint(1, 3),
            self.choice(("queued", "queued", "started", "done")),
            self.randint(1, 3),
            self.choice(ACTIVITIES),
            self.choice(QUEUES),
            self.choice((0, 0, 5)),
            self.choice((None, None, 0, 7)),
            self.choice(BODIES),
            self.choice(PLACES),
        )

    def tasks(self) -> list[Any]:
        return self.some(self.task)

    def attempts(self) -> list[Any]:
        return self.some(lambda: (self.randint(1, 3), self.choice(("failed", "lost", "late"))))

    def published(self) -> list[Any]:
        """Topic, body."""
        return self.some(lambda: (self.choice(IDS[:2]), self.choice(BODIES)))

    def events(self) -> list[Any]:
        return self.some(lambda: self.randint(1, 3))

    def labels(self) -> Step:
        """Search attributes, mostly none and each once, and the memo."""
        drawn = self.some(
            lambda: self.choice(
                (
                    Attribute("amount", "int", (self.randint(-1, 3),)),
                    Attribute("amount", "int", ()),
                    Attribute("score", "float", (self.choice((0.5, -1e300)),)),
                    Attribute("tags", "keyword_list", self.choice((("a", "o'clock"), ("b",), ()))),
                )
            )
        )
        return (
            list({each.name: each for each in drawn}.values()),
            self.choice((None, None, None, b'{"a":1}', b"{}")),
        )

    def phases(self) -> Step:
        """Those that begin, by when they should be over; those that are over; and what the worker's code says."""
        aside = Dice(self.getstate()[1][0])  # the rest of a script does not depend on it
        return (
            aside.some(lambda: aside.choice((3, 8))),
            aside.some(lambda: aside.randint(1, 6)),
            aside.choice((None, None, None, ("ada", None), (None, 7))),
        )

    def start(self) -> Step:
        return (
            "start",
            self.choice(IDS[:4]),
            self.choice((TYPES[0], *TYPES)),
            self.choice((QUEUES[0], *QUEUES)),
            self.choice((NAMESPACES[0], *NAMESPACES)),
            self.choice((b"one", b"one", b"two")),
            self.choice(tuple(IdReusePolicy)),
            self.choice(tuple(IdConflictPolicy)),
            self.choice((None, self.number())),  # the session that it is born in
            self.tasks(),
            self.labels(),
            self.choice(
                (None, None, ("m-1", "note", self.choice(BODIES), self.random() < HALF))
            ),  # what is sent with it
        )

    def append(self) -> Step:
        return (
            "append",
            self.number(),
            self.off(),
            self.off(),
            self.due(),
            self.randrange(4),  # messages that are consumed
            self.tasks(),
            self.events(),
            self.events(),
            self.tasks(),
            self.attempts(),
            self.choice((None,) * 40 + STATUSES),
            self.labels(),
            self.phases(),
            self.published(),
        )

    def operation(self) -> Step:
        number, off = self.number(), self.off()
        return self.choices(
            (
                self.start(),
                self.append(),
                ("release", number, off, self.due(), self.tasks()),
                ("block", number, off, self.choice(CODES), self.tasks()),
                ("confirm", number, off),
                ("terminate", number, off, self.random() < 0.1),
                (
                    "reset",
                    number,
                    self.choice((0, 0, 0, 1)),  # how far from the newest run of its chain
                    self.choice((0, 0, 0, -1)),
                    self.randrange(8),
                    self.random() < HALF,
                    self.tasks(),
                ),
                ("put", number, off, (self.randint(1, 3), "queued", *self.task()[2:]), self.attempts()),
                ("finish", number, self.number(), off, self.random() < HALF, self.task(), self.attempts()),
                ("expire", number, self.number(), off, self.off(), self.attempts()),
                ("heartbeat", number, self.number(), off, self.choice((None, *BODIES))),
                (
                    "publish",
                    number,
                    self.randint(1, 3),
                    self.choice((1, 1, 2)),
                    self.choice((None, None, 0, 1)),  # the session that it is of; None: it has no row
                    off,
                    self.choice((0, 0, 1, 2)),
                    self.published(),
                ),
                ("hand_out", number, self.number(), off, self.choice((None, 0, 10)), self.choice((None, *BODIES))),
                ("log", number, self.attempts()),
                self.send(),
            ),
            (2, 8, 3, 1, 1, 0.2, 0.7, 3, 3, 1, 3, 2, 2, 1, 4),
        )[0]

    def send(self) -> Step:
        return (
            "send",
            self.number(),
            self.choice(("signal", "signal", "cancel")),
            self.choice(IDS[:5]),
            self.choice(IDS),
            self.choice(BODIES),
            self.random() < HALF,
            self.some(self.number),
            self.choice((1, 3, 10_000, 10_000)),
        )

    def verb(self) -> Step:
        number = self.number()
        return self.choices(
            (
                ("open_session", self.choice(NAMESPACES[:1] * 3 + NAMESPACES), self.choice(QUEUES[:1] * 2 + QUEUES)),
                ("renew_session", number),
                ("close_session", number),
                ("bury_sessions", self.choice(NAMESPACES)),
                ("time_passes", self.choice((1, 1, 5, 10, LEASE_MS // 2, LEASE_MS))),
                ("claim_runs", number, self.choice(CODES), self.random() < HALF / 2),
                (
                    "claim_tasks",
                    number,
                    self.choice(("plain", "plain", "in order", "lifted")),
                    self.choice((1, 2, None)),
                    self.random() < HALF,  # whether the first of the activities depends on something
                ),
                ("woken_runs", number),
                ("look", number, self.choice(CODES)),
                ("ask", number, self.choice(IDS), self.choice(BODIES)),
                ("answer_request", number, self.choice((None, *BODIES[1:])), self.choice((None, self.off()))),
                ("take_answer", number),
                ("drop_requests",),
                ("pause", self.choice(PAUSE_KINDS), self.randrange(3), self.choice(IDS)),
                ("resume", self.choice(PAUSE_KINDS), self.randrange(3), self.choice((None, 0.5, 100.0))),
                ("take_duty", number, self.choice(IDS[:2])),
                ("leave_duty", number, self.choice(IDS[:2])),
                ("forget_chains", self.some(self.number, 3), self.choice((0, 5))),
                ("drop_leftovers", self.choice((1, 3))),
                ("repeat",),
                ("state_dependency", self.choice(NAMESPACES), self.choice((0.0, 1.0))),
                ("report_calls", self.choice(NAMESPACES), self.choice((0, 0, 1)), *(self.randrange(4) for _ in "cfs")),
                ("ask_dependency", self.choice(NAMESPACES), self.random() < HALF / 2, self.random() < HALF),
            ),
            (2, 2, 0.5, 2, 3, 8, 8, 4, 3, 3, 2, 2, 0.5, 2, 3, 1, 1, 1, 1, 2, 1, 3, 2),
        )[0]

    def script(self, steps: int) -> list[Step]:
        """There is something to work on from the start."""
        drawn: list[Step] = [("open_session", NAMESPACES[0], QUEUES[0]), ("open_session", NAMESPACES[0], QUEUES[0])]
        drawn.append(("commit", [self.start() for _ in range(3)]))
        while len(drawn) < steps:
            if self.random() < HALF:
                drawn.append(("commit", [self.operation() for _ in range(self.choice((1, 1, 2, 4)))]))
            else:
                drawn.append(self.verb())
        return drawn
