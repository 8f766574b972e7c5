"""All the commands, in the order in which `pledger --help` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from pledger.cli.activities import activities, token_keys
from pledger.cli.audit import audit_runs
from pledger.cli.backup import backup
from pledger.cli.check import check
from pledger.cli.dependencies import dependencies
from pledger.cli.doctor import doctor
from pledger.cli.endings import cancel, terminate
from pledger.cli.exits import MEANINGS
from pledger.cli.following import follow
from pledger.cli.history import history
from pledger.cli.listing import list_runs
from pledger.cli.messages import query, signal, update
from pledger.cli.pausing import pause, paused, resume
from pledger.cli.queues import limits, queues
from pledger.cli.replay import replay
from pledger.cli.resets import redrive, reset
from pledger.cli.retention import export, prune_runs
from pledger.cli.show import show
from pledger.cli.start import start
from pledger.cli.worker import worker
from pledger.version import __version__

app = typer.Typer(
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: it is what people pipe into less and grep, and it needs no Rich.
    rich_markup_mode=None,
    # \b keeps the lines of the paragraph as they are.
    epilog="\b\nExit codes:\n" + "\n".join(f"{code:>5}  {meaning}" for code, meaning in MEANINGS.items()),
)

#: Lets `-5` through as the JSON value that it is; what is neither an option nor JSON is refused by the command.
_TAKES_JSON = {"ignore_unknown_options": True}

app.command()(worker)
app.command(context_settings=_TAKES_JSON)(start)
app.command("list")(list_runs)
app.command()(show)
app.command()(history)
app.command(context_settings=_TAKES_JSON)(signal)
app.command(context_settings=_TAKES_JSON)(query)
app.command(context_settings=_TAKES_JSON)(update)
app.command()(follow)
app.command()(cancel)
app.command()(terminate)
app.command()(reset)
app.command()(redrive)
app.command()(pause)
app.command()(resume)
app.command()(paused)
app.add_typer(queues)
app.add_typer(limits)
app.add_typer(dependencies)
app.add_typer(activities)
app.add_typer(token_keys)
app.command()(replay)
app.command()(check)
app.command()(backup)
app.command()(export)
app.command("prune")(prune_runs)
app.command("audit")(audit_runs)
app.command()(doctor)


@app.callback()
def pledger(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="The version, and nothing else.")] = False,
) -> None:
    """Durable workflows on a ledger. PLEDGER_URL names it, sqlite:///pledger.db by default."""
    if version:
        typer.echo(f"pledger {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
