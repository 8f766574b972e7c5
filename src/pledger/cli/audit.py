"""`pledger audit`: whether every open run has something that carries it on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Final

import typer

from pledger.cli import documents, options, words
from pledger.cli.durations import parse_duration
from pledger.cli.exits import Exit
from pledger.cli.ledger import opened
from pledger.cli.output import Output, Styled
from pledger.cli.progress import Progress
from pledger.ops.audit import Report, audit

#: What carries runs on, as people say it.
_WAKERS: Final = {
    "lease": "are held by a worker",
    "worker": "are due, for a worker to take",
    "timer": "wait for a timer",
    "deadline": "wait for a message, or their deadline",
    "activity": "wait for an activity",
    "message": "wait for a message, and for nothing else",
    "person": "are blocked or paused, for a person to look at",
}
_OVERDUE_SHOWN: Final = 20


def audit_runs(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what was found, and wake nothing.")] = False,
    again_after: Annotated[
        timedelta,
        typer.Option(
            "--again-after",
            parser=parse_duration,
            metavar="DURATION",
            help="When to look again at what seems wrong: what moves meanwhile is well.",
            show_default="2s",
        ),
    ] = timedelta(seconds=2),
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Look at every open run: what carries it on, what is overdue, who has no owner; wake what nothing carries on."""
    output = Output(as_json=as_json)

    async def run() -> Report:
        async with opened(url, namespace) as client:
            with Progress(output, "runs looked at") as progress:
                return await audit(client, repair=not dry_run, again_after=again_after, progress=progress.advance)

    report = asyncio.run(run())
    if as_json:
        output.document(documents.audit(report))
    else:
        _tell(output, report)
    return Exit.BAD_NEWS if any(each.done == "found" for each in report.problems) else Exit.OK


def _tell(output: Output, report: Report) -> None:
    output.lines(f"{words.count(report.runs, 'open run')}")
    for waker, told in _WAKERS.items():
        if report.wakers[waker]:
            output.lines(f"  {report.wakers[waker]:,} {told}")
    output.lines(f"  of {report.no_owner:,} nobody is named as owner, {report.no_deadline:,} have no deadline")
    for workflow_id, name in report.overdue[:_OVERDUE_SHOWN]:
        told = f"overdue: {words.printable(name)} of {words.printable(workflow_id)}"
        output.lines(Styled(told, "yellow"))
    if len(report.overdue) > _OVERDUE_SHOWN:
        output.lines(f"… {len(report.overdue) - _OVERDUE_SHOWN:,} more are overdue; --json has all")
    for each in report.problems:
        done = "it was woken" if each.done == "woken" else "without --dry-run it would be woken"
        output.lines(Styled(f"nothing carries {words.printable(each.workflow_id)} on: {each.problem}; {done}", "red"))
    if not report.problems:
        output.lines("every one of them has something that carries it on")
