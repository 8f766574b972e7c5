"""`pledger replay`: recorded histories against today's code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

import typer

from pledger import errors
from pledger.cli import documents, options, words
from pledger.cli.code import Code, load_code
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import Output
from pledger.cli.progress import Progress
from pledger.client import Client, History
from pledger.history import payloads, tracebacks
from pledger.machine.identity import RunIdentity
from pledger.ops.archive import is_archive, read_archive

#: Runs that differ, named in the answer for people.
_NAMED_MAX: Final = 20
#: Characters of a reason in that list.
_REASON_CHARS: Final = 100

Verdict: TypeAlias = Literal["same", "differs", "unknown_type", "damaged"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of one run. events: how many it has. problem: the first difference and the way out, or what the code
    raised; None where there is none."""

    run: RunIdentity
    events: int
    verdict: Verdict
    problem: Exception | None = None


@dataclass(frozen=True, slots=True)
class Against:
    """What histories are compared with: the code, and the bound that its workers have."""

    code: Code
    payload_bytes_max: int


def replay(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKFLOW_ID|FILE",
            help="One run, or a file that `pledger history --json` or `pledger export` wrote.",
            show_default=False,
        ),
    ] = None,
    *,
    app: options.Code = None,
    all_runs: Annotated[bool, typer.Option("--all", help="Every run of the ledger that meets the filter.")] = False,
    filter_: Annotated[
        str,
        typer.Option(
            "--filter", metavar="FILTER", help="As for `pledger list`, like \"status = 'running'\".", show_default=False
        ),
    ] = "",
    run_id: options.RunId = None,
    payload_bytes_max: options.PayloadBytesMax = payloads.PAYLOAD_BYTES_MAX,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Replay histories against the code as it is now.

    Shows the first difference and changes nothing. Run it before a deployment: what differs here would block there. The
    exit code is 1 when a run differs.
    """
    output = Output(as_json=as_json)
    if (what is None) != all_runs:
        raise errors.UsageError("name one run or file, or say --all (with --filter) for the runs of the ledger")
    if filter_ and not all_runs:
        raise errors.UsageError("--filter goes with --all")
    if app is None:
        raise errors.UsageError(
            "replay needs the code to compare with: --app your_module (or module:attribute), or PLEDGER_APP"
        )
    code = load_code(app)
    against = Against(code, payload_bytes_max)
    if all_runs:
        answers = asyncio.run(_replay_all(output, against, url, namespace, filter_))
    else:
        assert what is not None
        file = Path(what)
        is_file = run_id is None and (file.is_file() or file.suffix == ".json" or is_archive(file))
        if is_file:
            answers = asyncio.run(_replay_file(against, file))
        else:
            answers = [asyncio.run(_replay_one(output, against, url, namespace, what, run_id))]
    return _show(output, code, answers)


# Replaying ------------------------------------------------------------------------------------------------------------


async def _replay_one(
    output: Output, against: Against, url: str, namespace: str, what: str, run_id: str | None
) -> Replayed:
    async with opened(url, namespace) as client:
        with Progress(output, f"replaying {what}"):
            handle = await find_run(client, what, run_id)
            return await _replay(against, await handle.history(until_damage=True))


async def _replay_all(output: Output, against: Against, url: str, namespace: str, filter_: str) -> list[Replayed]:
    answers: list[Replayed] = []
    async with opened(url, namespace) as client:
        with Progress(output, "runs replayed", await client.count(filter_)) as progress:
            async for history in _histories(client, filter_):
                answers.append(await _replay(against, history))
                progress.advance()
    return answers


async def _histories(client: Client, filter_: str) -> AsyncIterator[History]:
    async for run in client.list(filter_):
        yield await client.handle(run.workflow_id, run_id=run.run_id).history(until_damage=True)


async def _replay_file(against: Against, file: Path) -> list[Replayed]:
    histories = read_archive(file) if is_archive(file) else [_read_file(file)]
    return [await _replay(against, each) for each in histories]


def _read_file(file: Path) -> History:
    try:
        return History.read(file.read_bytes())
    except OSError as error:
        raise errors.UsageError(f"{file} cannot be read: {error.strerror}") from None
    except errors.PayloadError as error:
        raise errors.UsageError(f"{file}: {error}") from error


async def _replay(against: Against, history: History) -> Replayed:
    run, events = history.identity, sum(len(each.events()) for each in history.transitions)
    workflow = against.code.workflows.get(run.workflow_type)
    if workflow is None:
        return Replayed(run, events, "unknown_type")
    try:
        await history.replay(workflow, payload_bytes_max=against.payload_bytes_max)
    except Exception as error:  # noqa: BLE001 - user code, which may raise anything
        # A bug that the code raises on the way is a difference too: live, it would block the run.
        return Replayed(run, events, "differs", error)
    return Replayed(run, events, "same" if history.damage is None else "damaged", history.damage)


# The answer -----------------------------------------------------------------------------------------------------------


def _show(output: Output, code: Code, answers: list[Replayed]) -> int:
    if answers and all(each.verdict == "unknown_type" for each in answers):
        types = ", ".join(sorted({each.run.workflow_type for each in answers}))
        raise errors.UnknownWorkflowError(
            f"{code.target} does not have the workflow {types}; it has: {', '.join(sorted(code.workflows)) or 'none'}"
        )
    bad = [each for each in answers if each.problem is not None]
    if output.as_json:
        output.document({"counts": _counts(answers), "runs": [_document(each) for each in answers]})
    else:
        _tell(output, answers, bad)
    return Exit.BAD_NEWS if bad else Exit.OK


def _counts(answers: list[Replayed]) -> dict[str, int]:
    verdicts: tuple[Verdict, ...] = get_args(Verdict)
    return {verdict: sum(each.verdict == verdict for each in answers) for verdict in verdicts}


def _tell(output: Output, answers: list[Replayed], bad: list[Replayed]) -> None:
    if len(answers) != 1:
        output.lines(_summary(answers))
        if bad:
            _show_list(output, bad)
            output.lines("", "The first of them:" if len(bad) > 1 else "The difference:", _in_full(bad[0]))
        return
    [one] = answers
    if one.verdict != "differs":
        before = " before the damage" if one.verdict == "damaged" else ""
        output.lines(f"{one.run}: its {words.count(one.events, 'event')}{before} replay as recorded")
    if one.problem is not None:
        output.lines(_in_full(one))


def _summary(answers: list[Replayed]) -> str:
    counts = _counts(answers)
    parts = [f"{words.count(len(answers), 'run')}: {counts['same']:,} replay as recorded"]
    if counts["differs"]:
        parts.append(f"{counts['differs']:,} differ")
    if counts["damaged"]:
        parts.append(f"{counts['damaged']:,} damaged")
    if counts["unknown_type"]:
        types = sorted({each.run.workflow_type for each in answers if each.verdict == "unknown_type"})
        parts.append(f"{counts['unknown_type']:,} skipped, whose workflows the code does not have ({', '.join(types)})")
    return ", ".join(parts)


def _show_list(output: Output, bad: list[Replayed]) -> None:
    rows = [
        (each.run.workflow_id, each.run.run_id, each.run.workflow_type, _in_short(each)) for each in bad[:_NAMED_MAX]
    ]
    output.lines("")
    output.table(("WORKFLOW ID", "RUN ID", "TYPE", "WHY"), rows)
    if len(bad) > _NAMED_MAX:
        output.lines(f"and {len(bad) - _NAMED_MAX:,} more; --json names all")


def _in_short(answer: Replayed) -> str:
    problem = answer.problem
    if isinstance(problem, errors.NondeterminismError):
        return f"event {problem.event_id}: {problem.recorded or 'nothing more'} became {problem.replayed or 'nothing'}"
    return words.one_line(f"{type(problem).__name__}: {problem}", _REASON_CHARS)


def _in_full(answer: Replayed) -> str:
    problem = answer.problem
    assert problem is not None
    text = f"{type(problem).__name__}: {problem}"
    if isinstance(problem, errors.PledgerError):
        return text
    # A bug in the code: its message says little without the line that raised it.
    return f"{answer.run} does not replay: {text}\n{tracebacks.text_of(problem).rstrip()}"


def _document(answer: Replayed) -> dict[str, Any]:
    document: dict[str, Any] = {
        "workflow_id": answer.run.workflow_id,
        "run_id": answer.run.run_id,
        "workflow_type": answer.run.workflow_type,
        "events": answer.events,
        "verdict": answer.verdict,
    }
    if answer.problem is not None:
        document["problem"] = documents.problem(answer.problem)
    return document
