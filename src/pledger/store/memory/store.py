"""The verbs of the port on a ledger in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from pledger.engine.port.answers import Answer
from pledger.engine.port.circuit import Dependency, Tally
from pledger.engine.port.dependencies import Ask, DependencyRows, Stated
from pledger.engine.port.filters import Filter, Labels, Order
from pledger.engine.port.lanes import Bounds, Claim, Served
from pledger.engine.port.operations import (
    Append,
    Block,
    ConfirmClaim,
    ExpireTask,
    FinishTask,
    HandOut,
    Heartbeat,
    LogAttempts,
    Operation,
    Publish,
    PutTask,
    Release,
    ResetRun,
    Send,
    StartRun,
    Terminate,
)
from pledger.engine.port.pauses import Pause, Scope
from pledger.engine.port.posts import Child, Parting
from pledger.engine.port.records import (
    AttemptRecord,
    LimitRow,
    Mail,
    Message,
    OpenRow,
    Outlook,
    PlaceRow,
    QueueRow,
    Request,
    ResetRow,
    RunRow,
    RunStatus,
    SessionRow,
    StoredRun,
    TaskRow,
)
from pledger.engine.port.retention import Finished, Place
from pledger.engine.port.streams import StreamKey, StreamPage, StreamRow
from pledger.engine.port.tokens import TokenKey
from pledger.errors import InternalError, PledgerError, UsageError
from pledger.history.placement import LimitRule
from pledger.history.transition import StoredTransition
from pledger.store.memory import (
    dependencies,
    families,
    labels,
    ledger,
    loads,
    losses,
    mail,
    mailbox,
    pauses,
    pieces,
    queues,
    requests,
    resets,
    retention,
    sessions,
    streams,
    tasks,
    tokens,
)
from pledger.store.memory.faults import Faults
from pledger.store.memory.handle import MemoryHandle
from pledger.store.memory.state import State
from pledger.store.memory.transactions import MemoryTransactions

_RULES: Final[dict[type, Callable[[State, Any], Answer]]] = {
    StartRun: ledger.start_run,
    Append: ledger.append,
    Release: ledger.release,
    Block: ledger.block,
    ConfirmClaim: ledger.confirm_claim,
    Terminate: ledger.terminate,
    ResetRun: resets.reset_run,
    Send: mailbox.send,
    PutTask: tasks.put_task,
    FinishTask: tasks.finish_task,
    HandOut: tasks.hand_out,
    ExpireTask: tasks.expire_task,
    Heartbeat: tasks.heartbeat,
    Publish: streams.publish,
    LogAttempts: tasks.log_late,
}


def commit(state: State, batch: Sequence[Operation]) -> list[Answer]:
    return [_answer(state, operation) for operation in batch]


def _answer(state: State, operation: Operation) -> Answer:
    rule = _RULES.get(type(operation))
    if rule is None:
        return InternalError(f"The store has no operation {type(operation).__name__}.")
    try:
        answer = rule(state, operation)
        if operation.pieces:
            pieces.keep(state, operation, answer)
        return answer  # noqa: TRY300 - the rule alone may be refused
    except PledgerError as error:  # every rule looks before it changes anything
        return error


class MemoryStore(MemoryHandle, MemoryTransactions):
    """One process's handle on a ledger in memory.

    Without faults every verb acts at once and `commit` returns a finished future. With faults a commit is on its way
    until the hook lets it through; it is then applied in one go.
    """

    def __init__(self, state: State | None = None, faults: Faults | None = None) -> None:
        super().__init__(State() if state is None else state, faults)

    def commit(self, batch: Sequence[Operation]) -> asyncio.Future[list[Answer]]:
        loop = asyncio.get_running_loop()
        if self._faults is not None or self._killed:
            return loop.create_task(self._change(commit, batch))
        future: asyncio.Future[list[Answer]] = loop.create_future()
        if self._closed:
            future.set_exception(self._closed_error())
        else:
            future.set_result(self._apply(commit, batch))
        return future

    # Ledger -----------------------------------------------------------------------------------------------------------

    async def find_run(self, namespace: str, workflow_id: str, run_id: str | None = None) -> RunRow | None:
        return await self._call(ledger.find_run, namespace, workflow_id, run_id)

    async def read_run(self, run_key: int) -> RunRow:
        return await self._call(ledger.read_run, run_key)

    async def read_current(self, run_key: int) -> RunRow:
        return await self._call(ledger.read_current, run_key)

    async def read_statuses(self, run_keys: Sequence[int]) -> dict[int, tuple[RunStatus, bool]]:
        return await self._call(ledger.read_statuses, run_keys)

    async def read_history(self, run_key: int, after_event: int = 0, limit: int = 1000) -> list[StoredTransition]:
        return await self._call(ledger.read_history, run_key, after_event, limit)

    async def read_stored_runs(self, run_keys: Sequence[int], limit: int) -> list[StoredRun]:
        return await self._call(loads.read_stored_runs, run_keys, limit)

    async def read_last_transitions(self, run_key: int) -> list[StoredTransition]:
        return await self._call(ledger.read_last_transitions, run_key)

    async def list_runs(self, namespace: str, where: Filter, limit: int, order: Sequence[Order] = ()) -> list[RunRow]:
        return await self._call(labels.list_runs, namespace, where, limit, order)

    async def read_resets(self, run_key: int) -> list[ResetRow]:
        return await self._call(resets.read_resets, run_key)

    async def count_runs(self, namespace: str, where: Filter) -> int:
        return await self._call(labels.count_runs, namespace, where)

    async def read_labels(self, run_keys: Sequence[int]) -> dict[int, Labels]:
        return await self._call(labels.read_labels, run_keys)

    async def attribute_kinds(self, namespace: str) -> list[tuple[str, str]]:
        return await self._call(labels.attribute_kinds, namespace)

    async def count_open(self, namespace: str, now_ms: int) -> list[OpenRow]:
        return await self._call(ledger.count_open, namespace, now_ms)

    # Mailbox ----------------------------------------------------------------------------------------------------------

    async def read_mail(self, run_keys: Sequence[int]) -> list[Mail]:
        return await self._call(mail.read_mail, run_keys)

    async def read_inbox(self, chain_key: int) -> list[Message]:
        return await self._call(mailbox.read_inbox, chain_key)

    async def read_message(self, chain_key: int, message_id: str) -> Message | None:
        return await self._call(mailbox.read_message, chain_key, message_id)

    async def read_undelivered(self, chain_key: int) -> list[Message]:
        return await self._call(mailbox.read_undelivered, chain_key)

    # Families ---------------------------------------------------------------------------------------------------------

    async def read_parent(self, chain_key: int) -> RunRow | None:
        return await self._call(families.read_parent, chain_key)

    async def read_children(self, run_key: int, limit: int, after_event: int = 0) -> list[Child]:
        return await self._call(families.read_children, run_key, limit, after_event)

    async def read_parting(self, namespace: str, limit: int) -> Parting | None:
        return await self._call(families.read_parting, namespace, limit)

    async def settle_parting(self, run_key: int, chain_keys: Sequence[int]) -> None:
        await self._change(families.settle_parting, run_key, chain_keys)

    # Tasks ------------------------------------------------------------------------------------------------------------

    async def claim_tasks(self, session_key: int, now_ms: int, served: Served, room: int) -> list[TaskRow]:
        return await self._change(tasks.claim_tasks, session_key, now_ms, served, room)

    async def expired_tasks(self, namespace: str, now_ms: int, limit: int) -> list[TaskRow]:
        return await self._call(tasks.expired_tasks, namespace, now_ms, limit)

    async def owned_tasks(self, session_key: int) -> list[TaskRow]:
        return await self._call(tasks.owned_tasks, session_key)

    async def read_tasks(self, run_key: int) -> list[TaskRow]:
        return await self._call(tasks.read_tasks, run_key)

    async def read_attempts(self, run_key: int) -> list[AttemptRecord]:
        return await self._call(tasks.read_attempts, run_key)

    # Queues -----------------------------------------------------------------------------------------------------------

    async def claim_queued(self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds) -> Claim:
        return await self._change(queues.claim_queued, session_key, now_ms, served, room, bounds)

    async def state_limits(self, namespace: str, rules: Mapping[str, LimitRule]) -> None:
        await self._change(queues.state_limits, namespace, rules)

    async def override_limit(self, namespace: str, name: str, override: LimitRule | None) -> None:
        await self._change(queues.override_limit, namespace, name, override)

    async def read_limits(self, namespace: str) -> list[LimitRow]:
        return await self._call(queues.read_limits, namespace)

    async def read_queues(self, namespace: str, now_ms: int) -> list[QueueRow]:
        return await self._call(queues.read_queues, namespace, now_ms)

    async def read_places(self, run_key: int) -> list[PlaceRow]:
        return await self._call(queues.read_places, run_key)

    # Dependencies -----------------------------------------------------------------------------------------------------

    async def state_dependencies(self, namespace: str, stated: Mapping[str, Stated]) -> DependencyRows:
        return await self._change(dependencies.state_dependencies, namespace, stated)

    async def report_calls(self, namespace: str, tallies: Mapping[str, Sequence[Tally]]) -> DependencyRows:
        return await self._change(dependencies.report_calls, namespace, tallies)

    async def read_dependencies(self, namespace: str) -> DependencyRows:
        return await self._call(dependencies.read_dependencies, namespace)

    async def ask_dependency(self, namespace: str, name: str, ask: Ask) -> tuple[Dependency, Dependency] | None:
        return await self._change(dependencies.ask_dependency, namespace, name, ask)

    # Sessions ---------------------------------------------------------------------------------------------------------

    async def now_ms(self) -> int:
        return await self._call(sessions.now_ms)

    async def open_session(
        self, identity: str, namespace: str, task_queue: str, code: str, lease_ms: int
    ) -> SessionRow:
        return await self._change(sessions.open_session, identity, namespace, task_queue, code, lease_ms)

    def renew_session(self, session_key: int, lease_ms: int) -> int | None:
        return self._apply_blocking(sessions.renew_session, session_key, lease_ms)

    async def close_session(self, session_key: int) -> None:
        await self._change(sessions.close_session, session_key)

    async def bury_sessions(self, namespace: str) -> list[SessionRow]:
        return await self._change(sessions.bury_sessions, namespace)

    async def read_sessions(self, namespace: str) -> list[SessionRow]:
        return await self._call(sessions.read_sessions, namespace)

    async def claim_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        return await self._change(sessions.claim_runs, session_key, now_ms, namespace, task_queue, codes, limit)

    async def woken_runs(self, session_key: int) -> list[int]:
        return await self._change(sessions.woken_runs, session_key)

    async def owned_runs(self, session_key: int) -> list[RunRow]:
        return await self._call(sessions.owned_runs, session_key)

    async def look(
        self,
        session_key: int,
        now_ms: int,
        namespace: str,
        task_queue: str,
        codes: Mapping[str, str],
        held: Sequence[int],
    ) -> Outlook:
        return await self._call(sessions.look, session_key, now_ms, namespace, task_queue, codes, held)

    # Requests ---------------------------------------------------------------------------------------------------------

    async def ask(self, run_key: int, kind: str, name: str, body: bytes, expires_ms: int) -> int:
        return await self._change(requests.ask, run_key, kind, name, body, expires_ms)

    async def answer_request(
        self, request_key: int, answer: bytes | None, failure: bytes | None, fence: int | None = None
    ) -> None:
        await self._change(requests.answer_request, request_key, answer, failure, fence)

    async def take_answer(self, request_key: int) -> Request | None:
        return await self._change(requests.take_answer, request_key)

    async def drop_requests(self, now_ms: int) -> None:
        await self._change(requests.drop_requests, now_ms)

    # Pauses -----------------------------------------------------------------------------------------------------------

    async def pause(self, scope: Scope, reason: str, paused_by: str) -> Pause:
        return await self._change(pauses.pause, scope, reason, paused_by)

    async def resume(self, scope: Scope, rate: float | None) -> Pause | None:
        return await self._change(pauses.resume, scope, rate)

    async def claim_lifted_tasks(
        self, session_key: int, now_ms: int, served: Served, room: int, bounds: Bounds
    ) -> Claim:
        return await self._change(queues.claim_lifted_tasks, session_key, now_ms, served, room, bounds)

    async def claim_lifted_runs(
        self, session_key: int, now_ms: int, namespace: str, task_queue: str, codes: Mapping[str, str], limit: int
    ) -> list[RunRow]:
        place = (session_key, now_ms, namespace, task_queue)
        return await self._change(sessions.claim_lifted_runs, *place, codes, limit)

    async def read_pauses(self, namespace: str) -> list[Pause]:
        return await self._call(pauses.read_pauses, namespace)

    # Retention --------------------------------------------------------------------------------------------------------

    async def take_duty(self, namespace: str, name: str, session_key: int, hold_ms: int) -> bool:
        return await self._call(retention.take_duty, namespace, name, session_key, hold_ms)

    async def leave_duty(self, namespace: str, name: str, session_key: int, rest_ms: int) -> None:
        await self._call(retention.leave_duty, namespace, name, session_key, rest_ms)

    async def finished_types(self, namespace: str) -> list[str]:
        return await self._call(retention.finished_types, namespace)

    async def finished_chains(
        self, namespace: str, workflow_type: str, keep_ms: int, after: Place, limit: int
    ) -> list[Finished]:
        return await self._call(retention.finished_chains, namespace, workflow_type, keep_ms, after, limit)

    async def chain_runs(self, chain_keys: Sequence[int]) -> list[RunRow]:
        return await self._call(retention.chain_runs, chain_keys)

    async def forget_chains(self, chain_keys: Sequence[int], keep_ms: int) -> int:
        return await self._change(retention.forget_chains, chain_keys, keep_ms)

    async def drop_leftovers(self, limit: int) -> int:
        return await self._call(retention.drop_leftovers, limit)

    # Losses -----------------------------------------------------------------------------------------------------------

    async def declare_loss(self) -> int:
        return await self._change(losses.declare_loss)

    async def read_losses(self, run_keys: Sequence[int]) -> dict[int, bool]:
        # Almost always there are none: then nobody asks anything.
        return await self._call(losses.read_losses, run_keys) if self.state.losses else {}

    # Pieces -----------------------------------------------------------------------------------------------------------

    async def read_pieces(self, names: Sequence[bytes]) -> Mapping[bytes, bytes]:
        return await self._call(pieces.read_pieces, names)

    # Tokens -----------------------------------------------------------------------------------------------------------

    async def read_token_keys(self) -> list[TokenKey]:
        return await self._call(tokens.read_token_keys)

    async def rotate_token_keys(self, key_id: str, secret: bytes, keep_ms: int) -> TokenKey:
        return await self._change(tokens.rotate_token_keys, key_id, secret, keep_ms)

    # Streams ----------------------------------------------------------------------------------------------------------

    async def read_stream(self, chain_key: int, topic: str, position: int) -> StreamPage:
        return await self._call(streams.read_stream, chain_key, topic, position)

    async def read_streams(self, chain_key: int) -> list[StreamRow]:
        return await self._call(streams.read_streams, chain_key)

    async def read_stream_ends(self, asked: Sequence[StreamKey]) -> Mapping[StreamKey, int]:
        return await self._call(streams.read_stream_ends, asked)

    def heed_streams(self, chain_keys: Collection[int]) -> None:
        """Every handle hears of everything."""

    # The whole --------------------------------------------------------------------------------------------------------

    async def describe(self) -> dict[str, Any]:
        return {"kind": "memory", "durability": "none: gone with the process", "runs": len(self.state.runs)}

    async def back_up(self, path: str) -> int:
        raise UsageError(f"a ledger in memory has no file to copy to {path}. Use sqlite:/// for what is to be kept.")


class NamedStates:
    """The ledgers of `memory://name`: alive while a handle on one is open or was killed rather than closed."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[State, int]] = {}

    def open(self, name: str) -> MemoryStore:
        if not name:
            return MemoryStore()
        state, handles = self._states.get(name, (State(), 0))
        self._states[name] = (state, handles + 1)
        return _NamedStore(state, name, self)

    def release(self, name: str) -> None:
        state, handles = self._states.pop(name)
        if handles > 1:
            self._states[name] = (state, handles - 1)


class _NamedStore(MemoryStore):
    def __init__(self, state: State, name: str, states: NamedStates) -> None:
        super().__init__(state)
        self._name = name
        self._states = states

    async def close(self) -> None:
        if not self._closed:
            self._states.release(self._name)
        await super().close()


#: `open_memory(name)`: a handle on the ledger of that name in this process; without a name on one of its own.
open_memory: Final = NamedStates().open
