"""`pledger activity` and `pledger token`: what the outside says of attempts that were handed out."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated, Any, Final, TypeAlias

import typer

from pledger import errors
from pledger.cli import options
from pledger.cli.arguments import read_arguments
from pledger.cli.durations import parse_duration
from pledger.cli.exits import Exit
from pledger.cli.ledger import opened
from pledger.cli.output import Output
from pledger.client import Client
from pledger.completions import TOKEN_KEEP
from pledger.history import payloads

activities: Final = typer.Typer(name="activity", help="Activities that were handed out: complete them by their tokens.")
token_keys: Final = typer.Typer(name="token", help="The keys that sign the tokens of activities.")

#: Lets `-5` through as the JSON value that it is.
_TAKES_JSON: Final = {"ignore_unknown_options": True}

Token: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOKEN", help="As its attempt has handed it out; - reads it from stdin.")
]


@activities.command("complete", context_settings=_TAKES_JSON)
def complete_activity(
    token: Token,
    result: Annotated[
        str, typer.Argument(metavar="RESULT", help="One JSON value; @FILE reads it from a file.", show_default="null")
    ] = "null",
    *,
    payload_bytes_max: options.PayloadBytesMax = payloads.PAYLOAD_BYTES_MAX,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Give the result of an attempt that was handed out. Its token works once."""
    [value] = read_arguments([result])
    given = _token(token)
    _ask(url, namespace, lambda client: client.complete_activity(given, value), payload_bytes_max)
    return _accepted(as_json=as_json, outcome="completed")


@activities.command("fail")
def fail_activity(
    token: Token,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What went wrong.")],
    *,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="NAME", help="Of the error, which retry policies may name.")
    ] = None,
    non_retryable: Annotated[
        bool, typer.Option("--non-retryable", help="Whatever the policy: no next attempt.")
    ] = False,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Say that an attempt which was handed out has failed. The retry policy decides whether there is a next one."""
    error = errors.ApplicationError(message, type=kind, non_retryable=non_retryable)
    given = _token(token)
    _ask(url, namespace, lambda client: client.fail_activity(given, error))
    return _accepted(as_json=as_json, outcome="failed")


@activities.command("heartbeat", context_settings=_TAKES_JSON)
def heartbeat_activity(
    token: Token,
    details: options.Arguments = None,
    *,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Say that an attempt which was handed out is alive; the answer is whether it was asked to stop."""
    values, given, output = read_arguments(details or []), _token(token), Output(as_json=as_json)
    is_asked = _ask(url, namespace, lambda client: client.heartbeat_activity(given, *values))
    if as_json:
        output.document({"accepted": True, "cancel_requested": is_asked})
    else:
        output.lines("it was asked to stop" if is_asked else "it may go on")
    return Exit.OK


@activities.command("cancelled")
def cancelled_activity(
    token: Token,
    *,
    reason: options.Reason = "",
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Say that an attempt which was handed out, and was asked to stop, has stopped."""
    given = _token(token)
    _ask(url, namespace, lambda client: client.report_cancellation(given, reason))
    return _accepted(as_json=as_json, outcome="cancelled")


@token_keys.command("rotate")
def rotate_keys(
    *,
    keep: Annotated[
        timedelta,
        typer.Option(
            "--keep",
            parser=parse_duration,
            metavar="DURATION",
            help="For how long tokens of earlier keys are accepted; 0 for a key that others know.",
            show_default="7d",
        ),
    ] = TOKEN_KEEP,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """Have a new key sign tokens, for the whole ledger. Workers that run use it within 30 seconds."""
    output = Output(as_json=as_json)
    key_id = _ask(url, namespace, lambda client: client.rotate_token_keys(keep=keep))
    if as_json:
        output.document({"key_id": key_id, "keep_s": keep.total_seconds()})
    else:
        until = f"for {keep.total_seconds():g} s more" if keep else "no more"
        output.lines(f"key {key_id} signs tokens from now on; those of the keys before it are accepted {until}")
    return Exit.OK


def _token(text: str) -> str:
    """A token on a command line is seen by everybody on the machine; one from stdin is not."""
    return sys.stdin.readline().strip() if text == "-" else text


def _ask(
    url: str,
    namespace: str,
    ask: Callable[[Client], Awaitable[Any]],
    payload_bytes_max: int = payloads.PAYLOAD_BYTES_MAX,
) -> Any:
    async def run() -> Any:
        async with opened(url, namespace, payload_bytes_max=payload_bytes_max) as client:
            return await ask(client)

    return asyncio.run(run())


def _accepted(*, as_json: bool, outcome: str) -> int:
    output = Output(as_json=as_json)
    if as_json:
        output.document({"accepted": True, "outcome": outcome})
    else:
        output.lines(f"the attempt is {outcome}")
    return Exit.OK
