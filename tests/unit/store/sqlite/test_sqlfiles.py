"""The SQL beside the code is all there, and all of it is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pledger.store.sqlite
from pledger.store.sqlfiles import load_migrations, load_queries

PACKAGE = Path(pledger.store.sqlite.__file__).parent
SUBJECTS = [path.stem for path in (PACKAGE / "queries").glob("*.sql")]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_query_of_a_subject_is_used_by_its_module(subject: str) -> None:
    used = set(re.findall(r'_SQL\["(\w+)"\]', (PACKAGE / f"{subject}.py").read_text("utf-8")))
    assert used == set(load_queries("pledger.store.sqlite", subject))


@pytest.mark.parametrize("subject", SUBJECTS)
def test_names_are_unique_and_no_text_is_lost(subject: str) -> None:
    text = (PACKAGE / "queries" / f"{subject}.sql").read_text("utf-8")
    assert len(load_queries("pledger.store.sqlite", subject)) == text.count("-- name: ")
    assert sum(sql.count(";") for sql in load_queries("pledger.store.sqlite", subject).values()) == 0


def test_migrations_begin_with_the_ledger() -> None:
    assert "CREATE TABLE pledger_run " in load_migrations("pledger.store.sqlite")[0]
