"""One script of verbs, carried out on several stores, whose answers and rows must be the same.

A script is a list of steps that a seed draws: what to do, with numbers for "the third run", "the second session" or
"a fence that is one too low". Each store has keys of its own; a `Side` knows which run is which, carries the script
out on its store, and tells every answer with names in place of keys. What a step is built from (the row of a run, its
mail, its tasks) is read from the side's own store just before, and compared as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from pledger.engine.port.answers import Reply
from pledger.engine.port.circuit import Tally
from pledger.engine.port.dependencies import Ask, Stated
from pledger.engine.port.filters import EVERY, AllOf, AnyOf, Filter, Match, Not, Order
from pledger.engine.port.lanes import Bounds, Served
from pledger.engine.port.operations import Append, Operation, ResetRun, StartRun
from pledger.engine.port.pauses import Scope
from pledger.engine.port.records import OUTSIDE
from pledger.engine.port.retention import FROM_THE_START
from pledger.errors import PledgerError
from pledger.history.budget import BudgetRule
from pledger.history.placement import LimitRule
from tests.conformance.building import Builder
from tests.conformance.harness import LEASE_MS, NOW, Ledger
from tests.conformance.scripts import ACTIVITIES, CODES, IDS, NAMESPACES, QUEUES, TYPES, Step

#: Of what is due at the same moment any part may be taken first: so claims take all.
MANY: Final = 100


class Side(Builder):
    """A store with a script on it. requests: their runs and keys, in the order in which they came to be."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.name = name
        self.requests: list[tuple[int, int]] = []
        self._last: list[Callable[[], Operation]] = []

    async def do(self, step: Step) -> Any:
        """Carry the step out; the answer, with names in place of keys."""
        kind, *rest = step
        verb: Callable[..., Awaitable[Any]] = getattr(self, kind)
        return self.named(await verb(*rest))

    async def rows(self) -> Any:
        """All that the verbs show of the ledger."""
        store = self.store
        # Their order is nobody's promise.
        shown: dict[str, Any] = {"mail": sorted(await store.read_mail(self.runs), key=lambda mail: mail.run_key)}
        shown["stored"] = await store.read_stored_runs(self.runs, 3)
        statuses = await store.read_statuses(self.runs)
        shown["statuses"] = [statuses.get(run_key) for run_key in self.runs]
        for number, run_key in enumerate(self.runs):
            shown[f"run {number}"] = [
                await store.read_run(run_key),
                await store.read_current(run_key),
                await store.read_history(run_key),
                await store.read_last_transitions(run_key),
                await store.read_tasks(run_key),
                await store.read_places(run_key),
                await store.read_attempts(run_key),
                await store.read_resets(run_key),
                await store.read_inbox(self.chains[number]),
                await store.read_undelivered(self.chains[number]),
                await store.read_streams(self.chains[number]),
                [await store.read_stream(self.chains[number], each, 1) for each in IDS[:2]],
                [*(await store.read_stream_ends([(self.chains[number], each) for each in IDS[:2]])).values()],
                [await store.read_message(self.chains[number], each) for each in IDS],
            ]
        labels = await store.read_labels(self.runs)
        shown["labels"] = [labels.get(run_key) for run_key in self.runs]
        shown["sessions"] = [[await store.owned_runs(key), await store.owned_tasks(key)] for key in self.sessions]
        for namespace in NAMESPACES:
            shown[namespace] = [
                await store.read_sessions(namespace),
                await store.read_pauses(namespace),
                await store.read_dependencies(namespace),
                await store.read_limits(namespace),
                await store.read_queues(namespace, self.now_ms),
                await store.count_open(namespace, self.now_ms),
                await store.expired_tasks(namespace, self.now_ms, 10),
                await store.finished_types(namespace),
                [await store.finished_chains(namespace, each, 0, FROM_THE_START, 10) for each in TYPES],
                [await store.find_run(namespace, each) for each in IDS],
                *[
                    [await store.list_runs(namespace, each, 5, order), await store.count_runs(namespace, each)]
                    for each, order in LISTS
                ],
                await store.attribute_kinds(namespace),
            ]
        return self.named(shown)

    # Names in place of keys -------------------------------------------------------------------------------------------

    def named(self, value: Any, field: str = "") -> Any:
        match value:
            case PledgerError():
                return type(value).__name__
            case msgspec.Struct():
                fields = {name: self.named(getattr(value, name), name) for name in value.__struct_fields__}
                return type(value).__name__, {name: each for name, each in fields.items() if name not in _PRIVATE}
            case dict():
                return {key: self.named(each) for key, each in value.items()}
            case list() | tuple():
                return [self.named(each, field) for each in value]
            case int() if field in _RUN_FIELDS:
                return _name("run", self.runs, value)
            case int() if field == "chain_key":
                return _name("chain", self.chains, value)
            case int() if field in {"owner", "session_key"} and value != OUTSIDE:
                return _name("session", self.sessions, value)
        return value

    # Operations -------------------------------------------------------------------------------------------------------

    async def commit(self, batch: Sequence[Step]) -> Any:
        """All of them are built before any is written. What a start finds of its workflow id may be as of before the
        batch or after it: beside others it gets an id of its own."""
        seen: list[Any] = []
        if any(kind != "start" for kind, *_ in batch):
            batch = [
                (kind, f"{rest[0]} {len(self.runs)}", *rest[1:]) if kind == "start" else (kind, *rest)
                for kind, *rest in batch
            ]
        made = [each for kind, *rest in batch if (each := await getattr(self, f"_{kind}")(seen, *rest)) is not None]
        self._last = made
        return [seen, await self._write(made)]

    async def repeat(self) -> Any:
        """The newest batch once more: its answer was lost."""
        return await self._write(self._last)

    async def _write(self, made: list[Callable[[], Operation]]) -> Any:
        operations = [make() for make in made]
        answers = await self.store.commit(operations) if operations else []
        for operation, answer in zip(operations, answers, strict=True):
            if type(answer).__name__ == "Started" and isinstance(operation, StartRun | ResetRun):
                if answer.run_key in self.runs:  # type: ignore[union-attr]
                    continue  # a start that was asked for again
                self.runs.append(answer.run_key)  # type: ignore[union-attr]
                self.chains.append(answer.chain_key)  # type: ignore[union-attr]
            elif isinstance(operation, Append) and operation.successor is not None and answer is Reply.WON:
                successor = await self.store.read_current(operation.run_key)
                if successor.run_key not in self.runs:
                    self.runs.append(successor.run_key)
                    self.chains.append(successor.chain_key)
        return answers

    # Verbs ------------------------------------------------------------------------------------------------------------

    def _session(self, number: int) -> tuple[int, str, str]:
        """With its place."""
        if not self.sessions:
            return 10**9, NAMESPACES[0], QUEUES[0]
        at = number % len(self.sessions)
        return (self.sessions[at], *self.places[at])

    async def open_session(self, namespace: str, task_queue: str) -> Any:
        row = await self.store.open_session("host:1 'é'", namespace, task_queue, CODES[0], LEASE_MS)
        self.sessions.append(row.session_key)
        self.places.append((namespace, task_queue))
        return row

    async def renew_session(self, number: int) -> Any:
        return self.store.renew_session(self._session(number)[0], LEASE_MS)

    async def close_session(self, number: int) -> Any:
        return await self.store.close_session(self._session(number)[0])

    async def bury_sessions(self, namespace: str) -> Any:
        buried = await self.store.bury_sessions(namespace)
        return sorted(buried, key=lambda row: row.session_key)  # its order is nobody's promise

    async def time_passes(self, by_ms: int) -> None:
        self.ledger.clock.now_ms += by_ms

    async def claim_runs(self, number: int, code: str, lifted: bool) -> Any:
        session_key, namespace, task_queue = self._session(number)
        claim = self.store.claim_lifted_runs if lifted else self.store.claim_runs
        return await claim(session_key, self.now_ms, namespace, task_queue, dict.fromkeys(TYPES, code), MANY)

    async def claim_tasks(self, number: int, how: str, most: int | None, depends: bool) -> Any:
        """most: attempts at a time of the limit `api`, and of the whole queue; None: no limits."""
        session_key, namespace, task_queue = self._session(number)
        if how == "plain":
            served = Served(namespace, task_queue, ACTIVITIES)
            return await self.store.claim_tasks(session_key, self.now_ms, served, MANY)
        rules = {} if most is None else {"api": LimitRule(most), "all": LimitRule(2 * most)}
        dependency = ({ACTIVITIES[0]: BANK}, {BANK: _budget(0.0)}) if depends else ({}, {})
        bounds = Bounds(rules, {}, () if most is None else (("all", ""),), *dependency)
        claim = self.store.claim_lifted_tasks if how == "lifted" else self.store.claim_queued
        found = await claim(session_key, self.now_ms, Served(namespace, task_queue, ACTIVITIES), MANY, bounds)
        return [found.tasks, found.due_ms, found.waits, found.dependencies, found.has_moved]

    async def state_dependency(self, namespace: str, ratio: float) -> Any:
        return await self.store.state_dependencies(namespace, {BANK: Stated(_budget(ratio), (ACTIVITIES[0],))})

    async def report_calls(self, namespace: str, behind: int, *counts: int) -> Any:
        there = (await self.store.read_dependencies(namespace)).get(BANK)
        opened = 0 if there is None else max(0, there.opened - behind)
        return await self.store.report_calls(namespace, {BANK: [Tally(opened, *counts, "it's down")]})

    async def ask_dependency(self, namespace: str, is_pause: bool, at_once: bool) -> Any:
        return await self.store.ask_dependency(namespace, BANK, Ask(is_pause, IDS[2], "it's me", at_once))

    async def woken_runs(self, number: int) -> Any:
        return [_name("run", self.runs, each) for each in await self.store.woken_runs(self._session(number)[0])]

    async def look(self, number: int, code: str) -> Any:
        session_key, namespace, task_queue = self._session(number)
        codes = dict.fromkeys(TYPES[:2], code)
        return await self.store.look(session_key, self.now_ms, namespace, task_queue, codes, self.runs)

    async def ask(self, number: int, name: str, body: bytes) -> Any:
        if self.runs:
            run_key = self.runs[number % len(self.runs)]
            request_key = await self.store.ask(run_key, "query", name, body, self.now_ms + 10)
            self.requests.append((run_key, request_key))

    async def answer_request(self, number: int, answer: bytes | None, off: int | None) -> Any:
        """off: None where it does not matter who answers, else by how much the fence is not that of the run."""
        if not self.requests:
            return
        run_key, request_key = self.requests[number % len(self.requests)]
        failure = b"failed" if answer is None else None
        fence = None if off is None else (await self.store.read_run(run_key)).fence + off
        await self.store.answer_request(request_key, answer, failure, fence)

    async def take_answer(self, number: int) -> Any:
        return await self.store.take_answer(self.requests[number % len(self.requests)][1]) if self.requests else None

    async def drop_requests(self) -> Any:
        await self.store.drop_requests(self.now_ms)

    async def _scope(self, kind: Any, number: int) -> Scope | None:
        namespace = NAMESPACES[number % 2]
        match kind:
            case "run":
                if not self.runs:
                    return None
                row = await self.store.read_run(self.runs[number % len(self.runs)])
                if row.status != "running":  # its pause may be forgotten at any time
                    return None
                return Scope(row.namespace, kind, row.run_id, row.run_key, row.workflow_id)
            case "type":
                return Scope(namespace, kind, TYPES[number % len(TYPES)])
            case "queue":
                return Scope(namespace, kind, QUEUES[number % len(QUEUES)])
            case _:
                return Scope(namespace, kind, namespace)

    async def pause(self, kind: Any, number: int, reason: str) -> Any:
        scope = await self._scope(kind, number)
        return scope and await self.store.pause(scope, reason, "it's me")

    async def resume(self, kind: Any, number: int, rate: float | None) -> Any:
        scope = await self._scope(kind, number)
        return scope and await self.store.resume(scope, None if kind == "run" else rate)  # one run has no rate

    async def take_duty(self, number: int, name: str) -> Any:
        session_key, namespace, _ = self._session(number)
        return await self.store.take_duty(namespace, name, session_key, 10)

    async def leave_duty(self, number: int, name: str) -> Any:
        session_key, namespace, _ = self._session(number)
        return await self.store.leave_duty(namespace, name, session_key, 10)

    async def forget_chains(self, numbers: Sequence[int], keep_ms: int) -> Any:
        chains = sorted({self.chains[each] for each in numbers if each < len(self.chains)})
        return [await self.store.chain_runs(chains), await self.store.forget_chains(chains, keep_ms)]

    async def drop_leftovers(self, limit: int) -> Any:
        return await self.store.drop_leftovers(limit)


LISTS: Final[tuple[tuple[Filter, tuple[Order, ...]], ...]] = (
    (EVERY, ()),
    (Not(Match("status", None, (("=", "running"),))), (Order("started_ms"),)),
    (AllOf((Match("workflow_id", None, (("in", IDS[:2]),)), Match("blocked", None, (("=", 0),)))), ()),
    (Match("workflow_id", None, ((">", "order"),)), (Order("closed_ms", descending=True),)),
    (Match("closed_ms", None, ((">=", NOW + 5),)), (Order("duration_ms"),)),
    (AllOf((Match("retrying", None, (("=", 1),)), Match("owned", None, (("=", 0),)))), ()),
    (AnyOf((Match("act_by_ms", None, (("<", NOW + 5),)), Match("warned", None, (("=", 1),)))), ()),
    (AllOf((Not(Match("act_by_ms")), Match("answers_for"))), (Order("answers_for"), Order("deadline_ms"))),
    (Match("amount", "int", ((">", 1),)), (Order("amount", "int", descending=True),)),
    (
        AnyOf((Match("tags", "keyword_list", (("=", "o'clock"),)), Not(Match("amount", "int")))),
        (Order("score", "float"),),
    ),
)

BANK: Final = "the 'bank'"


def _budget(ratio: float) -> BudgetRule:
    """Everything about it happens within a few steps."""
    return BudgetRule(ratio, 100.0, 1_000, 0.5, 3, 5, 20)


_RUN_FIELDS: Final = frozenset({"run_key", "base_key", "ended", "paused", "successor"})
#: Numbers that a store gives to what is known by something else.
_PRIVATE: Final = frozenset({"message_key", "pause_key", "request_key"})


def _name(what: str, keys: Sequence[int], key: int) -> str:
    return f"{what} {keys.index(key)}" if key in keys else f"{what} ?{key}"
