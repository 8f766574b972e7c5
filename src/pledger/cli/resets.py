"""`pledger reset` and `pledger redrive`."""

from __future__ import annotations

import asyncio
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeAlias

import typer

from pledger.cli import documents, options, words
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import Output, Styled, Words
from pledger.client import ResetPlan, ResetReapplyType, WorkflowHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: Repetitions that are listed one by one.
_SHOWN: Final = 50

Really: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--dry-run/--yes", help="Only tell what would be repeated, or do it without a question.", show_default=False
    ),
]
Why: TypeAlias = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Kept with both runs.", show_default=False)
]


class Reapply(StrEnum):
    MESSAGES = "messages"
    SIGNALS = "signals"
    ALL = "all"
    NONE = "none"


def reset(
    workflow_id: options.WorkflowId,
    *,
    event_id: Annotated[
        int,
        typer.Option(
            "--event", metavar="EVENT", min=1, help="The last event that counts; `pledger history` lists them."
        ),
    ],
    reapply: Annotated[
        Reapply,
        typer.Option(
            "--reapply",
            help="What came after the event and is given again: `messages` are signals and updates, `all` has "
            "requests to cancel too.",
        ),
    ] = Reapply.MESSAGES,
    reason: Why = "",
    dry_run: Really = None,
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Go on from an event of a run in a new run, without doing again what was done up to there.

    First tells what may be done again. On a terminal it asks; elsewhere --yes does it. An open run is ended by it.
    """
    chosen = ResetReapplyType(reapply.value)
    return _go_on(
        _Request(workflow_id, run_id, url, namespace, dry_run, as_json),
        lambda handle: handle.plan_reset(event_id, reapply=chosen),
        lambda handle: handle.reset(event_id, reason=reason, reapply=chosen),
    )


def redrive(
    workflow_id: options.WorkflowId,
    *,
    reason: Why = "",
    dry_run: Really = None,
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Have a run that ended badly go on in a new run: what failed is tried again, what was done stays done.

    First tells what may be done again. On a terminal it asks; elsewhere --yes does it.
    """
    return _go_on(
        _Request(workflow_id, run_id, url, namespace, dry_run, as_json),
        lambda handle: handle.plan_redrive(),
        lambda handle: handle.redrive(reason=reason),
    )


class _Request(NamedTuple):
    """What both commands are asked alike."""

    workflow_id: str
    run_id: str | None
    url: str
    namespace: str
    dry_run: bool | None
    as_json: bool


def _go_on(
    request: _Request,
    plan: Callable[[WorkflowHandle[Any]], Awaitable[ResetPlan]],
    act: Callable[[WorkflowHandle[Any]], Awaitable[WorkflowHandle[Any]]],
) -> int:
    output = Output(as_json=request.as_json)

    async def run() -> tuple[ResetPlan, WorkflowHandle[Any] | None]:
        async with opened(request.url, request.namespace) as client:
            handle = await find_run(client, request.workflow_id, request.run_id)
            planned = await plan(handle)
            if not request.as_json:
                _tell(output, planned)
            return planned, await act(handle) if _is_wanted(request) else None

    planned, new = asyncio.run(run())
    if request.as_json:
        output.document(documents.reset_plan(planned, None if new is None else new.run_id))
    elif new is not None:
        output.lines(f"{words.printable(request.workflow_id)} goes on in run {new.run_id}")
    else:
        output.note("nothing is changed; --yes does it")
    return Exit.OK


def _is_wanted(request: _Request) -> bool:
    if request.dry_run is not None:
        return not request.dry_run
    return not request.as_json and sys.stdin.isatty() and typer.confirm("Go on?", default=False, err=True)


def _tell(output: Output, plan: ResetPlan) -> None:
    what = "redriven" if plan.how == "redrive" else "reset"
    output.lines(f"Run {plan.run_id} is to be {what} to event {plan.event_id}")
    if plan.open_run_id is not None:
        output.lines(Styled(f"Run {plan.open_run_id} is open and would be ended", "yellow"))
    if plan.reapplied:
        count = words.count(len(plan.reapplied), "message")
        output.lines(f"{count} given again: {words.one_line(', '.join(plan.reapplied), output.line_chars_max)}")
    if not plan.repetitions:
        output.lines("Nothing that has begun would be done again")
        return
    output.lines("May be done again, under the same idempotency key:", "")
    rows: list[tuple[Words, ...]] = [
        (
            str(each.event_id),
            words.call(each.activity_type, each.args, output.cell_chars_max),
            "had not ended" if each.outcome == "pending" else each.outcome,
            "at once" if each.certain else "if the code asks again",
            words.one_line(each.idempotency_key, output.cell_chars_max),
        )
        for each in plan.repetitions[:_SHOWN]
    ]
    output.table(("EVENT", "ACTIVITY", "WAS", "AGAIN", "KEY"), rows, right=("EVENT",))
    if len(plan.repetitions) > _SHOWN:
        output.lines(f"… {len(plan.repetitions) - _SHOWN:,} more; --json has them all")
    output.lines("")
