"""What the code of a run publishes for those who follow it.

No event is recorded: nothing in the run depends on it, and the history stays as short as it is. What the code publishes
in an activation is written with the transition that comes of it, and so exactly once: a transition that is not written
publishes nothing, and a replay re-enacts what is written, and publishes nothing again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pledger.history import payloads
from pledger.history.publishing import Tally, check_topic, encode_value
from pledger.machine.context import required

if TYPE_CHECKING:
    from pledger.machine.context import RunContext


class Outgoing(Tally):
    """values that the running activation has published, in order: (topic, JSON). activation: which one that is."""

    __slots__ = ("activation", "published")

    def __init__(self) -> None:
        super().__init__()
        self.activation = -1
        self.published: list[tuple[str, bytes]] = []


def publish(topic: str, value: Any) -> None:
    """Append a value to the stream of a topic, for those who follow the run: `handle.stream(topic)`.

        workflow.publish("progress", Progress(done=3, of=10))

    It is durable with what the code does next, and is there once, in the order of the calls, however often the run is
    replayed. Nothing in the run depends on it. The stream goes on over continue-as-new, and ends with the chain; the
    oldest values go beyond 16 MiB.
    Raises PayloadError for a value that cannot be kept, UsageError beyond 10,000 values or 16 MiB without waiting for
    anything in between, and beyond 64 topics. Queries may not publish.
    """
    context = required("workflow.publish")
    context.check_may_ask()
    topic = check_topic(topic)
    body = encode_value(value)
    what = f"what {context.identity} publishes to {topic!r}"
    payloads.check_size(body, what, context.payload_bytes_max)
    outgoing = context.outgoing
    if outgoing is None:
        outgoing = context.outgoing = Outgoing()
    if outgoing.activation != context.events:
        outgoing.activation, outgoing.values, outgoing.bytes = context.events, 0, 0
    outgoing.add(topic, len(body), str(context.identity), "Wait in between: for an activity, or a timer")
    if not context.replaying:
        outgoing.published.append((topic, body))


def take(context: RunContext) -> list[tuple[str, bytes]]:
    """What the activation that is over has published, once."""
    outgoing = context.outgoing
    assert outgoing is not None
    published, outgoing.published = outgoing.published, []
    return published
