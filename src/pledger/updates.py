"""Updates from the side of a client: sending one, waiting for what comes of it, sending one with a start."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from pledger import errors
from pledger.engine import blocks, update_calls
from pledger.engine.kept import afterwards, in_words
from pledger.history import failures, payloads
from pledger.history.events import CompleteUpdate, UpdateAccepted
from pledger.history.names import check_id

if TYPE_CHECKING:
    from pledger.client import Client
    from pledger.engine.connection import Connection
    from pledger.engine.port.records import RunRow
    from pledger.engine.updating import Told
    from pledger.handle import WorkflowHandle
    from pledger.history.payloads import Signature

T = TypeVar("T")

#: How long an update waits for a worker to accept it.
ACCEPT_TIMEOUT: Final = timedelta(seconds=10)


class WorkflowUpdateStage(Enum):
    """How far an update has come when `start_update` returns. ACCEPTED: it is recorded, and its handler will be run,
    whatever happens. COMPLETED: there is an outcome."""

    ACCEPTED = 2
    COMPLETED = 3


class WorkflowUpdateHandle(Generic[T]):
    """An update of one run. id: under which it was sent. workflow_run_id: of the run, once that is known."""

    def __init__(
        self,
        client: Client,
        update_id: str,
        handle: WorkflowHandle[Any],
        *,
        signature: Signature | None = None,
        known: tuple[RunRow, Told] | None = None,
    ) -> None:
        self._client = client
        self._handle = handle
        self._signature = signature
        self._known = known
        self.id = update_id
        self.workflow_id = handle.workflow_id
        self.workflow_run_id = handle.run_id if known is None else known[0].run_id

    def __repr__(self) -> str:
        return f"<WorkflowUpdateHandle {self.id!r} of workflow {self.workflow_id!r}>"

    async def result(self, *, wait_while_blocked: bool = False) -> T:
        """What the update's handler has returned, once it has.

        wait_while_blocked: wait for the fix instead of raising when a bug holds the run.
        Raises UpdateFailedError with what the handler raised as its cause, UpdateUnfinishedError when the run has ended
        before, RunBlockedError, and UnknownUpdateError where the run has accepted no update of this id.
        """
        known = self._known
        if known is None:
            row, told = await self._handle._row(), None  # noqa: SLF001 - a part of the same face
        else:
            row, told = known
        completed = None if told is None else told.completed
        if completed is None:
            row, completed = await update_calls.outcome(
                self._client.internals,
                row.run_key,
                self.id,
                told,
                wait_while_blocked=wait_while_blocked,
            )
        self.workflow_run_id = row.run_id
        return self._conclude(row, completed)

    def _conclude(self, row: RunRow, completed: CompleteUpdate) -> T:
        if completed.failure is None:
            decode = payloads.decode if self._signature is None else self._signature.decode_result
            return cast("T", decode(completed.result or b"null"))
        cause = failures.to_exception(completed.failure)
        told = f": {cause}" if str(cause) else ""
        raise errors.UpdateFailedError(
            f"the update {self.id!r} of {in_words(row)} failed{told}",
            update_id=self.id,
            workflow_id=row.workflow_id,
            run_id=row.run_id,
        ) from cause


class WithStartWorkflowOperation(Generic[T]):
    """A start that goes with an update: see `Client.start_update_with_start_workflow`. For one call.

    The arguments and options are those of `Client.start_workflow`.
    """

    def __init__(self, workflow: Callable[..., Any] | type | str, *args: Any, **options: Any) -> None:
        self.workflow = workflow
        self.args = args
        self.options = options
        self._handle: WorkflowHandle[Any] | None = None
        self._used = False

    def use(self) -> None:
        """Raises UsageError the second time."""
        if self._used:
            raise errors.UsageError("a WithStartWorkflowOperation is for one call; make another one")
        self._used = True

    def started(self, handle: WorkflowHandle[Any]) -> None:
        self._handle = handle

    async def workflow_handle(self) -> WorkflowHandle[T]:
        """The handle of the run that was started or found, whatever has become of the update."""
        if self._handle is None:
            raise errors.UsageError(
                "nothing is started yet: give the operation to start_update_with_start_workflow or "
                "execute_update_with_start_workflow, and await that first"
            )
        return self._handle


async def start_update(
    client: Client,
    handle: WorkflowHandle[Any],
    update: UpdateAccepted,
    signature: Signature | None,
    *,
    stage: WorkflowUpdateStage,
    timeout: timedelta,
    is_known: bool,
) -> WorkflowUpdateHandle[Any]:
    """signature: of its handler, where that is known. is_known: the run may have the update already."""
    if not isinstance(stage, WorkflowUpdateStage):
        raise errors.UsageError(f"wait_for_stage is {stage!r}; it must be a WorkflowUpdateStage")
    row, told = await _send(client.internals, handle, update, stage, timeout, is_known=is_known)
    return WorkflowUpdateHandle(client, update.update_id, handle, signature=signature, known=(row, told))


def check_update_id(connection: Connection, update_id: str | None, name: str, workflow_id: str) -> str:
    """The id, or a new one for None. Raises UsageError."""
    if update_id is None:
        return connection.entropy(12).hex()
    what = f"the id of update {name!r} to workflow {workflow_id!r}"
    update_id = check_id(update_id, what)
    if not update_id:
        raise errors.UsageError(f"{what} is empty, and names nothing: give one of your own, or None")
    return update_id


async def _send(
    connection: Connection,
    handle: WorkflowHandle[Any],
    update: UpdateAccepted,
    stage: WorkflowUpdateStage,
    timeout: timedelta,
    *,
    is_known: bool,
) -> tuple[RunRow, Told]:
    until: Any = "completed" if stage is WorkflowUpdateStage.COMPLETED else "accepted"
    while True:
        row = await handle._row()  # noqa: SLF001 - a part of the same face
        if row.status != "running":
            told = await update_calls.accepted_before(connection, row, update) if is_known else None
            if told is None:
                raise errors.RunClosedError(
                    f"{in_words(row)} is {row.status} and takes no update. {afterwards(row)}; to go on with it, start "
                    "a run under another workflow id",
                    status=row.status,
                )
            return row, told
        if is_known and (earlier := await update_calls.accepted_in_chain(connection, row, update)) is not None:
            return earlier
        if row.blocked is not None:
            raise blocks.to_error(row.blocked, row.workflow_id, row.workflow_type, row.run_id)
        try:
            told = await update_calls.send(connection, row, update, until, timeout)
        except errors.UpdateRejectedError as error:
            error.update_id, error.workflow_id, error.run_id = update.update_id, row.workflow_id, row.run_id
            raise
        if told is not None:
            return row, told
        is_known = True  # it may have been taken all the same, in the moment in which the run left
