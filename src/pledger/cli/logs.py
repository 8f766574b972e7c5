"""The worker's log: readable lines on stderr, or one JSON object a line on stdout."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from pledger.cli.words import printable

#: What log records of Pledger, and those of `workflow.logger` and `activity.logger`, say beside their message.
_FIELDS: Final = ("workflow_id", "run_id", "activity", "attempt")


def set_up_logging(level: str, *, as_json: bool) -> None:
    """Send every log record of this process to the worker's log."""
    handler: logging.Handler = logging.StreamHandler(sys.stdout if as_json else sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else _Lines(colours=sys.stderr.isatty()))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # At "debug" it tells how the event loop is built, which is nobody's concern here.
    logging.getLogger("asyncio").setLevel(logging.INFO)


class _Lines(logging.Formatter):
    """`18:40:12.345 WARNING the message  [order-7421 charge_card attempt 2]`, with a traceback below it."""

    _COLOURS: Final = {"WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[31m"}

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone()
        line = f"{time:%H:%M:%S}.{int(record.msecs):03} {record.levelname:7} {record.getMessage()}"
        fields = _fields(record)
        attempt = fields.pop("attempt", None)
        about = [str(fields[name]) for name in ("workflow_id", "activity") if name in fields]
        if attempt is not None:
            about.append(f"attempt {attempt}")
        if about:
            line += f"  [{' '.join(about)}]"
        if record.exc_text:  # without a secret that was in it
            line += "\n" + record.exc_text
        elif record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        line = printable(line)
        colour = self._COLOURS.get(record.levelname) if self._colours else None
        return line if colour is None else f"{colour}{line}\x1b[0m"


class _JsonLines(logging.Formatter):
    """time (UTC), level, logger, message, and what the record carries beside it."""

    def format(self, record: logging.LogRecord) -> str:
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_text:  # as above
            document["traceback"] = record.exc_text
        elif record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(document, enc_hook=str).decode()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _FIELDS if hasattr(record, name)}
