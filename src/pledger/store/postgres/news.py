"""What processes tell each other by NOTIFY: hints, which may be lost and may come too often; never the truth."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pledger.engine.port.lanes import Served

#: A run has closed: whoever waits for one looks.
OF_CLOSED: Final = '["closed"]'
#: Something has changed that concerns nobody knows whom.
OF_ANYTHING: Final = '["anything"]'

#: PostgreSQL takes less than 8,000 bytes.
_BYTES_MAX: Final = 7_000


def for_session(session_key: int | None) -> str:
    """A run of the session has news."""
    return json.dumps(["session", session_key])


def for_queue(namespace: str, task_queue: str) -> str:
    """A run or an activity of the queue may be due."""
    said = json.dumps(["queue", namespace, task_queue])
    return said if len(said) < _BYTES_MAX else OF_ANYTHING


def for_limits(namespace: str) -> str:
    """A slot of some limit is free."""
    return json.dumps(["slot", namespace])


def for_stream(chain_key: int) -> str:
    """Something was published by a run of the chain."""
    return json.dumps(["stream", chain_key])


def is_of_stream(payload: str) -> bool:
    """Whether what somebody has said is for those alone who follow streams."""
    return '["stream"' in payload


class Interest:
    """What a process wants to hear of. sessions: those of its workers, by key, each with (namespace, task_queue).
    limited: claims that saw activities wait for a slot, each as (namespace, task_queue, activity types): a worker has
    several, one for each kind of activity. streams: the chains whose streams are followed.

    name: of this handle, so that it does not listen to itself: what it has written its own process knows.
    """

    def __init__(self) -> None:
        self.name = secrets.token_hex(4)
        self.sessions: dict[int, tuple[str, str]] = {}
        self.limited: set[tuple[str, str, tuple[str, ...]]] = set()
        self.streams: frozenset[int] = frozenset()

    def in_slots(self, served: Served, *, waits: bool) -> None:
        """A claim has seen whether any of this waits for a slot."""
        claim = (served.namespace, served.task_queue, tuple(served.activity_types))
        if waits:
            self.limited.add(claim)
        else:
            self.limited.discard(claim)

    def signed(self, said: Iterable[str]) -> list[str]:
        return [f"{self.name}{each}" for each in said]

    def concerns(self, payload: str) -> bool:
        """Whether it is worth waking for."""
        name, said = payload[: len(self.name)], payload[len(self.name) :]
        if name == self.name:
            return False
        try:
            kind, *about = json.loads(said)
        except ValueError:
            return True
        match kind:
            case "session":
                return about[0] in self.sessions
            case "queue":
                return tuple(about) in self.sessions.values()
            case "slot":
                return any(namespace == about[0] for namespace, _, _ in self.limited)
            case "stream":
                return about[0] in self.streams
            case _:
                return True
