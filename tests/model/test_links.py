"""Models and code stay linked: what a move stands for is there, and no operation of the port is forgotten.

A failure here asks for a look at the model: has the protocol changed, or only a name?
"""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

import pledger
from pledger.engine.port.operations import Operation
from pledger.engine.port.verbs import Ledger, Mailbox, Requests, Sessions, Store, Tasks
from tests.model import lease, lease_links, mailbox, rollout

QUERIES = Path(pledger.__file__).parent / "store" / "sqlite" / "queries"
NAMED = sorted(
    {name for code in (lease_links.CODE, mailbox.CODE, rollout.CODE) for names in code.values() for name in names}
)


@pytest.mark.parametrize("name", NAMED)
def test_what_a_move_stands_for_is_there(name: str) -> None:
    where, what = name.split(":")
    if where.endswith(".sql"):
        queries = re.findall(r"^-- name: (\w+)$", (QUERIES / where).read_text(encoding="utf-8"), re.MULTILINE)
        assert what in queries
    else:
        assert callable(functools.reduce(getattr, what.split("."), importlib.import_module(where)))


def test_every_operation_and_verb_of_the_port_has_a_move_or_a_reason() -> None:
    operations = {operation.__name__ for operation in get_args(Operation)}
    verbs = {
        verb
        for group in (Ledger, Mailbox, Tasks, Sessions, Requests, Store)
        for verb in vars(group)
        if not verb.startswith("_")
    }
    assert set(lease_links.PORT) == operations | verbs


def test_what_the_port_is_linked_to_are_moves() -> None:
    linked = {move for moves in lease_links.PORT.values() if isinstance(moves, tuple) for move in moves}
    assert linked <= set(lease_links.CODE)


def test_moves_concern_a_worker_or_a_client() -> None:
    assert {*lease.CLIENTS, *lease.CONCERNS} == set(lease_links.CODE)
