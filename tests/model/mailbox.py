"""The mailbox of a chain with roll-over, as DESIGN describes it: messages belong to the chain, not to one of its runs.

Two senders, each with two messages and its own ids, which it sends again until it has an answer. A worker reads the
inbox, makes messages inputs of the present run and consumes them by id with the append that delivers them; the run may
roll over (continue-as-new, or since its history is full), and its code may return, at any transition. Then the workflow
id may be used again. The worker may die at any moment; a read may take long, and brings what was there when it began.

A sender's transaction has a beginning and a commit, so that messages may become visible in another order than they were
put in: on PostgreSQL they do. On SQLite there is one writer, and nothing lies between the two. That old owners cannot
append is the other model's subject (`lease.py`): here the run has one owner or none.

`CODE` says which function and query each move stands for. Here the successor is in the hands of the same worker with
the answer; in the code it waits for whoever comes, which is a claim more.
`without` takes out one of GUARDS: what is left must be able to go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from tests.model.explorer import Move, State

GUARDS: Final = (
    "messages are consumed by id",
    "an id is known again after delivery",
    "the mailbox belongs to the chain",
    "an ended chain takes no message",
    "the end waits for open senders",
    "letting go waits for open senders",
    "a read belongs to its run",
    "a late read delivers nothing again",
    "each message wakes for itself",
)

#: Move: the functions and queries that it stands for; () for what happens to a process.
CODE: Final[dict[str, tuple[str, ...]]] = {
    "find": ("pledger.handle:WorkflowHandle._row", "ledger.sql:find_newest_run"),
    "send": (
        "pledger.handle:WorkflowHandle._send",
        "pledger.store.sqlite.mailbox:send",
        "mailbox.sql:insert_message",
        "mailbox.sql:find_successor",
    ),
    "send_commits": ("mailbox.sql:wake_owner", "mailbox.sql:wake_ownerless"),
    "send_answered": ("pledger.handle:WorkflowHandle._send", "mailbox.sql:knows_message"),
    "claim": ("pledger.engine.loading:Loader.load", "sessions.sql:claim_runs", "mail.sql:waiting_messages"),
    "die": ("sessions.sql:orphan_runs", "sessions.sql:orphan_wakes"),
    "let_go": ("pledger.engine.leaving:Leaving.release", "ledger.sql:release", "ledger.sql:due_if_mail"),
    "hear": ("pledger.engine.intake:Intake._look", "sessions.sql:woken_runs", "sessions.sql:drop_wakes"),
    "read": ("pledger.engine.mail:MailReader.read", "pledger.engine.active_run:ActiveRun.forget_delivered"),
    "read_arrives": ("pledger.engine.loading:take_message", "mail.sql:waiting_messages"),
    "activate": ("pledger.engine.runs:Runs._activate", "pledger.machine.machine:Machine.activate"),
    "append": ("ledger.sql:append", "mailbox.sql:forget_message", "mailbox.sql:deliver_message"),
    "append_and_roll": (
        "pledger.store.sqlite.ledger:_succeed",
        "ledger.sql:append_and_close",
        "ledger.sql:insert_successor",
        "ledger.sql:insert_its_start",
    ),
    "append_and_close": ("ledger.sql:append_and_close", "ledger.sql:settle_messages"),
    "append_answered": ("pledger.engine.runs:Runs.won", "pledger.engine.runs:Runs.failed"),
    "use_the_id_again": ("pledger.store.sqlite.ledger:start_run", "ledger.sql:insert_chain"),
}

# The chain and its worker
CHAIN: Final = 0  # 1, then 2: the second one of the same workflow id
OPEN: Final = 1
RUN: Final = 2  # which segment
EVENTS: Final = 3  # messages in its history
HELD: Final = 4
DUE: Final = 5
WAKE: Final = 6
NEWS: Final = 7  # the worker knows that there is something to read
TAKEN: Final = 8  # a set of messages: became inputs
GONE: Final = 9  # those of them whose transition is durable, and its answer is here
INPUTS: Final = 10  # wait for the next transition
READING: Final = 11
SHOWN: Final = 12  # what that read will bring
OP: Final = 13
PHASE: Final = 14  # of the append: sent, written
CONSUMED: Final = 15  # the messages in it
WRONG: Final = 16
FAULTS: Final = 17
NEXT_KEY: Final = 18
SHARED: Final = 19
# A sender, from its base
NUMBER: Final = 0  # of the message that it is about to send or sends
STEP: Final = 1  # 1: its transaction is open, 2: written and not answered
TARGET: Final = 2  # the chain that it found for this message
WAKES: Final = 3  # whom its open transaction wakes
MESSAGES: Final = 4  # each: state, key, chain
WIDTH: Final = 10

BASES: Final = (SHARED, SHARED + WIDTH)
FIELDS: Final = tuple(
    (bit, base + MESSAGES + 3 * n) for bit, (base, n) in enumerate((b, n) for b in BASES for n in (0, 1))
)

UNCOMMITTED, WAITING, DELIVERED, UNDELIVERED, REFUSED, SKIPPED = 1, 2, 3, 4, 5, 6
AN_OWNER, WHOEVER_COMES, NOBODY = 1, 2, 3
STEPPING, ROLLING, CLOSING = 1, 2, 3
COPY: Final = 9  # the key of a row that is there for the second time
PER_SENDER: Final = 2
EVENTS_MAX: Final = 2
RUNS_MAX: Final = 3

RULES: Final = (
    "",
    "no message is delivered twice",
    "the messages of one sender are delivered in its order",
    "a reused workflow id sees no old message",
)
TWICE, ORDER, OLD_CHAIN = 1, 2, 3

Act: TypeAlias = Callable[["Mailbox", State], Iterator[Move]]


class Mailbox:
    """The model. faults: how many answers may be lost and workers die. without: guards that are taken out."""

    def __init__(self, faults: int, *, without: str | None = None) -> None:
        if without is not None and without not in GUARDS:
            raise ValueError(without)
        self.without = without
        start = bytearray(SHARED + 2 * WIDTH)
        start[CHAIN] = start[OPEN] = start[DUE] = 1
        start[FAULTS] = faults
        self.initial = bytes(start)
        self.acts: list[Act] = [getattr(Mailbox, name) for name in CODE]

    def moves(self, s: State) -> Iterator[Move]:
        for act in self.acts:
            yield from act(self, s)

    # Senders ----------------------------------------------------------------------------------------------------------

    def find(self, s: State) -> Iterator[Move]:
        for sender, b in enumerate(BASES, 1):
            if not s[b + TARGET] and s[b + NUMBER] < PER_SENDER:
                n = bytearray(s)
                n[b + TARGET] = s[CHAIN]
                yield ("find", sender), bytes(n)

    def send(self, s: State) -> Iterator[Move]:
        """A transaction begins; for a message that has been sent before, it ends with an answer at once."""
        for sender, b in enumerate(BASES, 1):
            if s[b + STEP] or not s[b + TARGET]:
                continue
            n = bytearray(s)
            message = b + MESSAGES + 3 * s[b + NUMBER]
            ended = not s[OPEN] or s[CHAIN] != s[b + TARGET]
            forgotten = s[message] == DELIVERED and self.without == "an id is known again after delivery"
            if s[message] and not forgotten:
                n[b + STEP] = 2
                yield ("send", sender, "again: it is known"), bytes(n)
            elif ended and (self.without != "an ended chain takes no message" or not s[OPEN]):
                n[message] = REFUSED
                n[b + STEP] = 2
                yield ("send", sender, "and is refused"), bytes(n)
            else:
                n[message], n[message + 2] = UNCOMMITTED, s[b + TARGET]
                if forgotten:
                    bit = next(bit for bit, field in FIELDS if field == message)
                    n[message + 1] = COPY
                    n[TAKEN] &= ~(1 << bit)
                    n[GONE] &= ~(1 << bit)
                if self.without == "messages are consumed by id":
                    n[NEXT_KEY] += 1
                    n[message + 1] = n[NEXT_KEY]
                n[b + STEP], n[b + WAKES] = 1, AN_OWNER if s[HELD] else WHOEVER_COMES
                if s[HELD] and s[WAKE] and self.without == "each message wakes for itself":
                    n[b + WAKES] = NOBODY
                yield ("send", sender), bytes(n)

    def send_commits(self, s: State) -> Iterator[Move]:
        for sender, b in enumerate(BASES, 1):
            if s[b + STEP] == 1:
                n = bytearray(s)
                message = b + MESSAGES + 3 * s[b + NUMBER]
                if s[message] == UNCOMMITTED:
                    n[message] = WAITING
                if s[OPEN] and s[b + WAKES] == AN_OWNER:
                    n[WAKE] = 1
                elif s[OPEN] and s[b + WAKES] == WHOEVER_COMES:
                    n[DUE] = 1
                n[b + STEP], n[b + WAKES] = 2, 0
                yield ("send_commits", sender), bytes(n)

    def send_answered(self, s: State) -> Iterator[Move]:
        for sender, b in enumerate(BASES, 1):
            if s[b + STEP] == 2:
                n = bytearray(s)
                n[b + STEP] = 0
                if s[FAULTS]:
                    n[FAULTS] -= 1
                    yield ("send_answered", sender, "answer lost"), bytes(n)
                    n[FAULTS] += 1
                n[b + NUMBER] += 1
                n[b + TARGET] = 0
                yield ("send_answered", sender), bytes(n)

    # The worker -------------------------------------------------------------------------------------------------------

    def claim(self, s: State) -> Iterator[Move]:
        locked = any(s[b + WAKES] == WHOEVER_COMES for b in BASES)  # the run's row, by who makes it due
        if s[OPEN] and not s[HELD] and s[DUE] and not locked:
            n = bytearray(s)
            n[HELD], n[DUE] = 1, 0
            n[TAKEN] = n[INPUTS] = self._visible(s)
            yield ("claim",), bytes(n)

    def die(self, s: State) -> Iterator[Move]:
        if s[HELD] and s[FAULTS]:
            n = bytearray(s)
            n[FAULTS] -= 1
            _leave(n, due=True)
            yield ("die",), bytes(n)

    def let_go(self, s: State) -> Iterator[Move]:
        waits = _open_senders(s) and self.without != "letting go waits for open senders"
        if s[HELD] and not s[INPUTS] and not s[OP] and not waits:
            n = bytearray(s)
            _leave(n, due=bool(self._visible(s)))
            yield ("let_go",), bytes(n)

    def hear(self, s: State) -> Iterator[Move]:
        if s[HELD] and s[WAKE]:
            n = bytearray(s)
            n[WAKE], n[NEWS] = 0, 1
            yield ("hear",), bytes(n)

    def read(self, s: State) -> Iterator[Move]:
        if s[HELD] and s[NEWS] and not s[READING]:
            n = bytearray(s)
            n[NEWS], n[READING], n[SHOWN] = 0, 1, self._visible(s)
            n[TAKEN] &= ~s[GONE]
            n[GONE] = 0
            yield ("read",), bytes(n)

    def read_arrives(self, s: State) -> Iterator[Move]:
        if s[READING]:
            n = bytearray(s)
            new = s[SHOWN] & ~s[TAKEN]
            n[INPUTS] |= new
            n[TAKEN] |= new
            n[READING] = n[SHOWN] = 0
            yield ("read_arrives",), bytes(n)

    def activate(self, s: State) -> Iterator[Move]:
        if not s[HELD] or s[OP]:
            return
        n = bytearray(s)
        full = s[EVENTS] >= EVENTS_MAX
        n[PHASE], n[CONSUMED], n[INPUTS] = 1, s[INPUTS], 0
        if s[INPUTS] and not full:
            n[OP] = STEPPING
            yield ("activate",), bytes(n)
            n[OP] = CLOSING
            yield ("activate", "and return"), bytes(n)
        if s[RUN] + 1 < RUNS_MAX and (full or s[INPUTS]):
            if full:  # new messages are held: they stay in the inbox, for the next run
                n[CONSUMED] = 0
            n[OP] = ROLLING
            yield ("activate", "and continue as new"), bytes(n)
        elif full:
            n[CONSUMED], n[OP] = 0, CLOSING
            yield ("activate", "and return"), bytes(n)

    def append(self, s: State) -> Iterator[Move]:
        if s[OP] == STEPPING and s[PHASE] == 1:
            n = bytearray(s)
            self._consume(n)
            n[PHASE] = 2
            yield ("append",), bytes(n)

    def append_and_roll(self, s: State) -> Iterator[Move]:
        if s[OP] == ROLLING and s[PHASE] == 1:
            n = bytearray(s)
            self._consume(n)
            n[PHASE] = 2
            n[RUN] += 1
            n[EVENTS] = 0
            if self.without == "the mailbox belongs to the chain":
                for _, field in FIELDS:
                    if n[field] == WAITING:
                        n[field] = SKIPPED
            yield ("append_and_roll",), bytes(n)

    def append_and_close(self, s: State) -> Iterator[Move]:
        waits = _open_senders(s) and self.without != "the end waits for open senders"
        if s[OP] == CLOSING and s[PHASE] == 1 and not waits:
            n = bytearray(s)
            self._consume(n)
            for _, field in FIELDS:
                if n[field] == WAITING:
                    n[field] = UNDELIVERED
            _leave(n, due=False)
            n[OPEN] = n[RUN] = n[EVENTS] = 0
            yield ("append_and_close",), bytes(n)

    def append_answered(self, s: State) -> Iterator[Move]:
        """The answer; a lost one only takes longer, since a repeated append is known again."""
        if s[PHASE] == 2:
            n = bytearray(s)
            n[OP] = n[PHASE] = n[CONSUMED] = 0
            if s[OP] == ROLLING:
                n[INPUTS] = n[TAKEN] = n[GONE] = 0
                n[NEWS] = 1
                if self.without != "a read belongs to its run":
                    n[READING] = n[SHOWN] = 0
            else:
                n[GONE] |= s[CONSUMED]
                if self.without == "a late read delivers nothing again":
                    n[TAKEN] &= ~s[CONSUMED]
            yield ("append_answered",), bytes(n)

    def use_the_id_again(self, s: State) -> Iterator[Move]:
        if not s[OPEN] and s[CHAIN] == 1:
            n = bytearray(s)
            n[CHAIN], n[OPEN], n[DUE] = 2, 1, 1
            yield ("use_the_id_again",), bytes(n)

    # Parts of moves ---------------------------------------------------------------------------------------------------

    def _visible(self, s: State | bytearray) -> int:
        """The waiting messages that a read sees now, as a set."""
        by_id = self.without == "an ended chain takes no message"
        return sum(1 << bit for bit, field in FIELDS if s[field] == WAITING and (by_id or s[field + 2] == s[CHAIN]))

    def _consume(self, n: bytearray) -> None:
        """What the append does to the inbox, and whether it may."""
        consumed, mark = n[CONSUMED], 0
        for bit, field in FIELDS:
            if not consumed >> bit & 1:
                continue
            if n[field] != WAITING or n[field + 1] == COPY:
                n[WRONG] = TWICE
            elif n[field + 2] != n[CHAIN]:
                n[WRONG] = OLD_CHAIN
            elif bit & 1 and n[field - 3] in (UNCOMMITTED, WAITING) and not consumed >> (bit - 1) & 1:
                n[WRONG] = ORDER
            mark = max(mark, n[field + 1])
            n[EVENTS] = min(n[EVENTS] + 1, EVENTS_MAX)
        for bit, field in FIELDS:
            if consumed >> bit & 1:
                n[field] = DELIVERED
            elif n[field] in (UNCOMMITTED, WAITING) and n[field + 1] < mark:
                n[field] = SKIPPED

    def canonical(self, s: State) -> State:
        """Of two states that differ by the senders' numbers, the one whose first sender comes first."""
        one, other = s[SHARED : SHARED + WIDTH], s[SHARED + WIDTH :]
        if one < other:
            return s
        swapped = bytearray(s[:SHARED] + other + one)
        for field in (TAKEN, GONE, INPUTS, SHOWN, CONSUMED):
            swapped[field] = (s[field] & 3) << 2 | s[field] >> 2
        return min(s, bytes(swapped)) if one == other else bytes(swapped)

    def wrong(self, s: State) -> str | None:
        if s[WRONG]:
            return RULES[s[WRONG]]
        looked_at = s[INPUTS] | s[SHOWN] | s[CONSUMED]
        looks = s[DUE] if not s[HELD] else s[WAKE] or s[NEWS] or s[OP] == ROLLING
        for bit, field in FIELDS:
            if s[field] == SKIPPED:
                return "no message is lost: one was accepted and nobody will ever read it"
            if s[field] != WAITING:
                continue
            if not s[OPEN] or (s[field + 2] < s[CHAIN] and self.without != "an ended chain takes no message"):
                return "no message of an ended chain is left unread"
            if not looks and not looked_at >> bit & 1:
                return "every message that waits has somebody who will look"
        return None

    def tell(self, s: State) -> str:
        shared = " ".join(f"{name}={value}" for name, value in zip(_NAMES, s, strict=False) if value)
        senders = [s[b : b + WIDTH] for b in BASES]
        told = [
            f"sender {i}: number={p[0]} step={p[1]} messages={_STATES[p[4]]},{_STATES[p[7]]}"
            for i, p in enumerate(senders, 1)
        ]
        return "; ".join([shared, *told])


def _open_senders(s: State) -> bool:
    """Whether a sender that has locked the chain (shared) has not committed."""
    return any(s[b + STEP] == 1 and s[b + TARGET] == s[CHAIN] for b in BASES)


def _leave(n: bytearray, *, due: bool) -> None:
    """The run leaves the worker's memory."""
    n[HELD : CONSUMED + 1] = bytes(CONSUMED + 1 - HELD)
    n[DUE] = due


_NAMES: Final = [name.lower() for name, value in globals().items() if name.isupper() and type(value) is int][:SHARED]
_STATES: Final = ("unsent", "uncommitted", "waiting", "delivered", "undelivered", "refused", "skipped")
