"""What waits for runs, gathered: messages, outcomes, requests."""

from __future__ import annotations

from collections.abc import Sequence

from pledger.engine.port.records import Mail
from pledger.store.memory import mailbox, requests, tasks
from pledger.store.memory.state import State


def read_mail(state: State, run_keys: Sequence[int]) -> list[Mail]:
    found = [_mail_of(state, run_key) for run_key in run_keys if run_key in state.runs]
    return [mail for mail in found if mail != Mail(mail.run_key)]


def _mail_of(state: State, run_key: int) -> Mail:
    outcomes = (task for task in tasks.read_tasks(state, run_key) if task.state == "done")
    inbox = mailbox.read_inbox(state, state.run(run_key).chain_key)
    return Mail(run_key, tuple(inbox), tuple(outcomes), tuple(requests.read_requests(state, run_key)))
