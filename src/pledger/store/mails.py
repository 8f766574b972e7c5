"""Rows of several runs, put together as the mail of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pledger.engine.port.records import Mail, Message, Request, TaskRow


def gather(
    messages: Iterable[tuple[int, Message]], outcomes: Iterable[TaskRow], requests: Iterable[Request]
) -> list[Mail]:
    """messages: each with the key of its run. All in the order in which they are to stand."""
    inboxes: dict[int, list[Message]] = defaultdict(list)
    done: dict[int, list[TaskRow]] = defaultdict(list)
    asked: dict[int, list[Request]] = defaultdict(list)
    for run_key, message in messages:
        inboxes[run_key].append(message)
    for task in outcomes:
        done[task.run_key].append(task)
    for request in requests:
        asked[request.run_key].append(request)
    return [
        Mail(run_key, tuple(inboxes[run_key]), tuple(done[run_key]), tuple(asked[run_key]))
        for run_key in dict.fromkeys((*inboxes, *done, *asked))
    ]
