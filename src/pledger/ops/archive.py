"""Archives: runs as JSON Lines, one a line, in a file that outlives the ledger's memory of them.

A line is what `History.export` writes, in one line, with what else is known of the run: its end, the log of attempts,
signals that came too late, what the run has published, and the last checksum of its history, which the ledger keeps
when it forgets the rest. So `History.read` and `pledger replay` take it. `.gz` at the end of the name compresses.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from pledger.client import Client
from pledger.engine.port.records import AttemptRecord, Message, RunRow
from pledger.engine.port.verbs import Store
from pledger.errors import CorruptHistoryError, PayloadError, StoreUnavailableError, UsageError
from pledger.history import failures
from pledger.views import History

#: What an archive is named like.
SUFFIXES = (".jsonl", ".jsonl.gz")


def is_archive(path: Path) -> bool:
    return path.name.endswith(SUFFIXES)


class Archive:
    """A new file to write runs to. Nothing that is there already is written over.

    runs: how many it has. Whatever was written before `sync` is on the disk after it, and can be read whatever comes
    then. Raises UsageError for a name that is taken or is none of an archive, StoreUnavailableError when it cannot be
    written.
    """

    def __init__(self, path: Path) -> None:
        if not is_archive(path):
            raise UsageError(f"{path} is no name for an archive; end it in {' or '.join(SUFFIXES)}")
        self.path = path
        self.runs = 0
        try:
            # Private from its first byte on: payloads are in it in plain text.
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
        except FileExistsError:
            raise UsageError(f"{path} is there already, and an archive replaces nothing. Name another file") from None
        except OSError as error:
            raise self._unwritable(error) from error
        self._member: gzip.GzipFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.sync()
        finally:
            self._file.close()

    def write(self, line: bytes) -> None:
        try:
            self._out().write(line + b"\n")
        except OSError as error:
            raise self._unwritable(error) from error
        self.runs += 1

    def sync(self) -> None:
        """On the disk. A compressed file is made of parts, each whole by itself: one ends here."""
        try:
            if self._member is not None:
                self._member.close()
                self._member = None
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error

    def _out(self) -> IO[bytes] | gzip.GzipFile:
        if not self.path.name.endswith(".gz"):
            return self._file
        if self._member is None:
            self._member = gzip.GzipFile(fileobj=self._file, mode="wb")
        return self._member

    def _unwritable(self, error: OSError) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self.path} cannot be written: {error.strerror}. Nothing was removed that is not in it; check the folder "
            "and the space that is left"
        )


def read_archive(path: Path) -> Iterator[History]:
    """The histories of an archive. Raises UsageError for a file that is none, naming the line."""
    for where, line in read_lines(path):
        try:
            yield History.read(line)
        except PayloadError as error:
            raise UsageError(f"{where}: {error}") from error


def read_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The lines of an archive, one for each run, with what to call them. Raises UsageError for what cannot be read."""
    number = 0
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as lines:
            for line in lines:
                number += 1
                yield f"{path}, line {number}", line
    except (OSError, EOFError) as error:
        raise UsageError(f"{path} cannot be read after line {number}: {error}") from error


async def archived(client: Client, row: RunRow) -> bytes:
    """The line of a run. Its checksums are verified on the way. Raises CorruptHistoryError, NoLongerKeptError."""
    store = client.internals.store
    history = await client.handle(row.workflow_id, run_id=row.run_id).history()
    document = msgspec.json.decode(history.export(), type=dict[str, msgspec.Raw])
    end: dict[str, Any] = {
        "status": row.status,
        "started_ms": row.started_ms,
        "closed_ms": row.closed_ms,
        "last_event": row.last_event,
        "checksum": row.head.hex(),
        "attempts": [_attempt(each) for each in await store.read_attempts(row.run_key)],
        "undelivered": [_message(each) for each in await store.read_undelivered(row.chain_key)],
        "published": [each async for each in _published(store, row)],
    }
    return msgspec.json.format(msgspec.json.encode({**document, **end}), indent=-1)


async def archive_row(client: Client, archive: Archive, row: RunRow) -> CorruptHistoryError | None:
    """Write one run; what is wrong with it, if it is damaged: then nothing was written."""
    try:
        archive.write(await archived(client, row))
    except CorruptHistoryError as error:
        return error
    return None


async def _published(store: Store, row: RunRow) -> AsyncIterator[dict[str, Any]]:
    """What this run of its chain has published, and is kept."""
    for stream in await store.read_streams(row.chain_key):
        position = stream.first
        while values := (await store.read_stream(row.chain_key, stream.topic, position)).values:
            for each in values:
                if each.run_id == row.run_id:
                    yield {
                        "topic": stream.topic,
                        "offset": each.position,
                        "event_id": each.event_id,
                        "attempt": each.attempt,
                        "published_ms": each.published_ms,
                        "value": msgspec.Raw(each.body),
                    }
            position = values[-1].position + 1


def _attempt(record: AttemptRecord) -> dict[str, Any]:
    failure = None if record.failure is None else failures.decode(record.failure)
    told = None if failure is None else {"type": failure.type, "message": failure.message}
    return {
        "event_id": record.event_id,
        "attempt": record.attempt,
        "outcome": record.outcome,
        "started_ms": record.started_ms,
        "ended_ms": record.ended_ms,
        "worker": record.worker,
        "failure": told,
    }


def _message(message: Message) -> dict[str, Any]:
    return {
        "kind": message.kind,
        "message_id": message.message_id,
        "name": message.name,
        "args": msgspec.Raw(message.body) if message.kind == "signal" else None,
        "sent_ms": message.sent_ms,
        "verdict": message.verdict,
    }
