"""Options and arguments that several commands share, declared once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from pledger.cli.durations import parse_duration

DEFAULT_URL: Final = "sqlite:///pledger.db"

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="PLEDGER_URL",
        help="The ledger: sqlite:///orders.db, sqlite:////var/lib/orders.db.",
    ),
]
Namespace: TypeAlias = Annotated[
    str,
    typer.Option("--namespace", metavar="NAME", envvar="PLEDGER_NAMESPACE", help="The namespace within the ledger."),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Strict JSON on stdout; errors as JSON on stderr.")]
PayloadBytesMax: TypeAlias = Annotated[
    int,
    typer.Option(
        "--payload-bytes-max",
        min=1,
        metavar="BYTES",
        envvar="PLEDGER_PAYLOAD_BYTES_MAX",
        help="The most that one value may have. All who write to a ledger should have the same.",
    ),
]
WorkflowId: TypeAlias = Annotated[
    str, typer.Argument(metavar="WORKFLOW_ID", help="The id that the run was started with.")
]
RunId: TypeAlias = Annotated[
    str | None, typer.Option("--run-id", metavar="RUN_ID", help="This run of the id, instead of its newest one.")
]
Archive: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--archive",
        metavar="FILE",
        help="Look in this file of `pledger export` or `pledger prune --export`, not in the ledger.",
        show_default=False,
    ),
]
Arguments: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGUMENT",
        help="Each one JSON value: 7, '\"text\"', '{\"id\": 7}'; @FILE reads it from a file, - from stdin.",
        show_default=False,
    ),
]
Reason: TypeAlias = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Kept in the history.", show_default=False)
]
Wait: TypeAlias = Annotated[bool, typer.Option("--wait", help="Wait until the run has closed.")]
Timeout: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--timeout",
        parser=parse_duration,
        metavar="DURATION",
        help="Stop waiting after so long (30s, 5m); the run goes on.",
        show_default=False,
    ),
]
Code: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--app",
        envvar="PLEDGER_APP",
        metavar="MODULE[:ATTRIBUTE]",
        help="Where today's code is, as for `pledger worker`.",
        show_default=False,
    ),
]
TaskQueue: TypeAlias = Annotated[
    str, typer.Option("--task-queue", metavar="NAME", help="The queue of the workers that know it.")
]
