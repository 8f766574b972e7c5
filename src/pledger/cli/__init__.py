"""The command line: `pledger`, or `python -m pledger`.

Thin over the client: each command parses, asks one thing, and shows the answer. The answer goes to stdout, remarks and
errors to stderr, and the exit code (`exits.py`) says how it went.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from io import TextIOWrapper

from pledger import errors
from pledger.cli.exits import Exit, exit_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. arguments: without the program's name; by default the process's."""
    # Imported here: `import pledger.cli` stays possible for whoever only wants the exit codes.
    import typer  # noqa: PLC0415

    from pledger.cli.app import app  # noqa: PLC0415
    from pledger.cli.output import Output, ReaderGoneError  # noqa: PLC0415

    arguments = sys.argv[1:] if arguments is None else arguments
    output = Output(as_json="--json" in arguments)
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a pipe that cannot show a character gets its escape, never a UnicodeEncodeError.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = app(arguments, prog_name="pledger", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = "pledger" if context is None else context.command_path
        output.usage_error(error.format_message(), f"`{command} --help` tells how it is used")
        return Exit.USAGE
    except errors.PledgerError as error:
        if isinstance(error, errors.InternalError):
            traceback.print_exception(error)
        output.error(error)
        return exit_of(error)
    except (ReaderGoneError, BrokenPipeError):
        # It has seen enough, so all is well. What is still buffered must not fail at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, its traceback is to be reported
        traceback.print_exception(error)
        output.error(errors.InternalError(f"{type(error).__name__}: {error}. Please report this with the lines above"))
        return Exit.BUG
    return Exit.OK if status is None else int(status)
