"""Where the values of secrets come from, and how they reach an attempt.

They are asked for anew by every attempt, so that one that has been changed is known at the next attempt, and only those
that the activity declares. What was learnt is redacted from then on, in all that this process writes and logs.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
import re
import subprocess
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pledger.errors import SecretError
from pledger.history.secret import LENGTH_MIN, check_name, held, known, redact, remember

#: How long a command may take to give a secret, in seconds.
COMMAND_TIMEOUT_S: Final = 10.0


_learning: Final = threading.Lock()


class SecretResolver(Protocol):
    """Gives the value of a secret, or None where it is not known here; then the next one is asked.

    May block. Raises SecretError where it cannot tell.
    """

    def resolve(self, name: str) -> str | None: ...


class EnvironmentSecrets:
    """From environment variables: `stripe-key`, with the prefix `PLEDGER_SECRET_`, from PLEDGER_SECRET_STRIPE_KEY."""

    def __init__(self, prefix: str = "PLEDGER_SECRET_") -> None:
        self.prefix = prefix

    def __repr__(self) -> str:
        return f"EnvironmentSecrets({self.prefix!r})"

    def resolve(self, name: str) -> str | None:
        return os.environ.get(self.prefix + re.sub(r"[^A-Za-z0-9]", "_", name).upper())


class FileSecrets:
    """From files of their names in one folder, as Docker and Kubernetes mount them. A line feed at the end is none of
    the value."""

    def __init__(self, folder: str | os.PathLike[str] = "/run/secrets") -> None:
        self.folder = Path(folder)

    def __repr__(self) -> str:
        return f"FileSecrets({str(self.folder)!r})"

    def resolve(self, name: str) -> str | None:
        try:
            return (self.folder / check_name(name)).read_text("utf-8").removesuffix("\n").removesuffix("\r")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            # The text of the error may be a part of the file.
            raise SecretError(f"{self!r} cannot read the secret {name!r}: {type(error).__name__}", name=name) from None


class CommandSecrets:
    """From what a command prints that is given the name as its last argument: `CommandSecrets(["pass", "show"])`."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = list(command)

    def __repr__(self) -> str:
        return f"CommandSecrets({self.command!r})"

    def resolve(self, name: str) -> str | None:
        try:
            done = subprocess.run(  # noqa: S603 - the command is the operator's, the name is checked
                [*self.command, check_name(name)],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=COMMAND_TIMEOUT_S,
                check=True,
            )
            return done.stdout.decode().removesuffix("\n").removesuffix("\r")
        except subprocess.CalledProcessError as error:
            why = f"it ended with {error.returncode}"
        except subprocess.TimeoutExpired:
            why = f"it took more than {COMMAND_TIMEOUT_S:g} s"
        except (OSError, UnicodeDecodeError) as error:
            why = type(error).__name__
        raise SecretError(f"{self!r} did not give the secret {name!r}: {why}. Try it in a shell", name=name)


class Secrets:
    """resolvers: asked in this order."""

    def __init__(self, resolvers: Sequence[SecretResolver] = ()) -> None:
        self._resolvers = tuple(resolvers)
        # The environment is at hand; anything else may take its time.
        self._blocking = any(not isinstance(each, EnvironmentSecrets) for each in self._resolvers)
        if self._resolvers:
            redact_logs()

    def resolve(self, names: Sequence[str], activity: str) -> dict[str, str]:
        """The values. Raises SecretError for the first that is nowhere, or cannot be a secret."""
        return {name: self._resolve(name, activity) for name in names}

    def _resolve(self, name: str, activity: str) -> str:
        for resolver in self._resolvers:
            value = resolver.resolve(name)
            if value is None:
                continue
            if len(value) < LENGTH_MIN:
                raise SecretError(
                    f"the secret {name!r} of activity {activity!r} has {len(value)} characters in {resolver!r}; fewer "
                    f"than {LENGTH_MIN} cannot be told from ordinary text, and so not be kept out of logs",
                    name=name,
                )
            with _learning:
                remember(name, value)
            return value
        asked = ", ".join(map(repr, self._resolvers)) or "none: give the worker secrets=[...]"
        raise SecretError(f"the secret {name!r} of activity {activity!r} is nowhere; asked: {asked}", name=name)

    def around(
        self, code: Callable[..., Any], names: Sequence[str], activity: str, executor: str
    ) -> Callable[..., Any]:
        """The code of an attempt, with the values at hand while it runs."""
        wrap = self._around_async if executor == "async" else self._around_plain
        return functools.partial(wrap, code, names, activity)

    async def _around_async(
        self, code: Callable[..., Any], names: Sequence[str], activity: str, /, *args: Any, **keywords: Any
    ) -> Any:
        if self._blocking:
            held.set(await asyncio.to_thread(self.resolve, names, activity))
        else:
            held.set(self.resolve(names, activity))
        return await code(*args, **keywords)

    def _around_plain(
        self, code: Callable[..., Any], names: Sequence[str], activity: str, /, *args: Any, **keywords: Any
    ) -> Any:
        held.set(self.resolve(names, activity))
        return code(*args, **keywords)


def hold(context: contextvars.Context, values: Mapping[str, str]) -> None:
    """In the process of an attempt: have its values at hand, and in nothing that it says."""
    redact_logs()
    for name, value in values.items():
        remember(name, value)
    context.run(held.set, values)


# Logs -----------------------------------------------------------------------------------------------------------------


def redact_logs() -> None:
    """From now on no record of this process's logging carries the value of a secret that it has learnt."""
    plain = logging.getLogRecordFactory()
    if getattr(plain, "redacts", False):
        return

    def record_without_secrets(*args: Any, **keywords: Any) -> logging.LogRecord:
        record = plain(*args, **keywords)
        if not known.forms:
            return record
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - the handler tells of it, in its own way
            return record
        redacted = redact(message)
        if redacted != message:
            record.msg, record.args = redacted, ()
        if record.exc_info and record.exc_info[1] is not None:
            # Formatters take the text that is there.
            text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            redacted = redact(text)
            if redacted != text:
                record.exc_text, record.exc_info = redacted, None
        return record

    record_without_secrets.redacts = True  # type: ignore[attr-defined] # so that it is not done twice
    logging.setLogRecordFactory(record_without_secrets)


def resolver_of(text: str) -> SecretResolver:
    """What `pledger worker --secrets` takes: `env`, `env:PREFIX`, `file:FOLDER` or `command:pass show`.

    Raises SecretError.
    """
    kind, _, rest = text.partition(":")
    match kind:
        case "env":
            return EnvironmentSecrets(rest) if rest else EnvironmentSecrets()
        case "file" if rest:
            return FileSecrets(rest)
        case "command" if rest:
            import shlex  # noqa: PLC0415 - for this alone

            return CommandSecrets(shlex.split(rest))
        case _:
            raise SecretError(f"--secrets {text!r} is unknown; use env:PREFIX, file:FOLDER or command:WORDS")
