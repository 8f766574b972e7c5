"""What is published: topics, and how much of it at a time. Pure."""

from __future__ import annotations

from typing import Any, Final

from pledger.errors import PayloadError, UsageError
from pledger.history import payloads
from pledger.history.names import check_id

#: Of one run, and of one attempt: whoever follows has to know what there is.
TOPICS_MAX: Final = 64
#: What the code of a run publishes without waiting for anything in between, or an attempt before it is written.
VALUES_MAX: Final = 10_000
BYTES_MAX: Final = 16 * 1024 * 1024


def check_topic(given: object) -> str:
    """Raises UsageError for what names no topic."""
    topic = check_id(given, "a topic")
    if not topic:
        raise UsageError("the topic is empty; those who follow must have a name for it")
    return topic


def encode_value(value: Any) -> bytes:
    """As JSON: a plain value so that its types come back by themselves, an object of a class by that class, which is to
    be named where it is read. Raises PayloadError."""
    try:
        return payloads.encode(value)
    except PayloadError:
        if type(value).__module__ == "builtins":
            raise
        return payloads.encode(value, type(value))


class Tally:
    """Of one publisher. values, bytes: of what is on its way; whoever takes it on sets them back. topics: all it ever
    had."""

    __slots__ = ("bytes", "topics", "values")

    def __init__(self) -> None:
        self.values = 0
        self.bytes = 0
        self.topics: set[str] = set()

    def has_room(self, size: int) -> bool:
        """One that is larger than the bound by itself has room alone."""
        return self.values < VALUES_MAX and self.bytes + size <= max(BYTES_MAX, size)

    def add(self, topic: str, size: int, who: str, remedy: str) -> None:
        """One value more. Raises UsageError at a bound, of what is not its own to raise. remedy: in words."""
        if not self.has_room(size):
            raise UsageError(
                f"{who} has {self.values:,} values with {self.bytes:,} bytes on their way to the streams, and one more "
                f"to publish; at a time it may be {VALUES_MAX:,} values and {BYTES_MAX:,} bytes. {remedy}"
            )
        if topic not in self.topics:
            if len(self.topics) >= TOPICS_MAX:
                raise UsageError(
                    f"{who} publishes to more than {TOPICS_MAX} topics, the bound of one; put what tells them apart "
                    f"into the values"
                )
            self.topics.add(topic)
        self.values += 1
        self.bytes += size
