"""Where a ledger is, out of a URL."""

from __future__ import annotations

import pytest

from pledger.errors import UsageError
from pledger.store.postgres.address import parse_url
from pledger.store.postgres.statements import load_statements, load_steps


def test_the_schema_is_ours_and_the_rest_is_libpqs() -> None:
    address = parse_url("postgresql://ada:secret@db.example:5433/shop?schema=orders&sslmode=require")
    assert address.schema == "orders"
    assert address.conninfo == "postgresql://ada:secret@db.example:5433/shop?sslmode=require"
    assert address.channel == "pledger_orders"


def test_no_password_is_shown() -> None:
    assert parse_url("postgresql://ada:secret@db/shop").shown == "postgresql://db/shop?schema=pledger"


def test_several_hosts_are_kept() -> None:
    url = "postgresql://ada@one:5432,two:5432/shop?target_session_attrs=read-write"
    assert parse_url(url).conninfo == url


@pytest.mark.parametrize("password", ["pa/ss", "s#cret", "a?b", "%zz"])
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(UsageError, match="cannot be read") as caught:
        parse_url(f"postgresql://ada:{password}@db/shop")
    assert password not in str(caught.value)


@pytest.mark.parametrize("schema", ["", "Orders", "1st", "pg_orders", "a-b", "a" * 64, "a; DROP TABLE x"])
def test_a_schema_that_cannot_be_is_refused(schema: str) -> None:
    with pytest.raises(UsageError, match="lower-case letters"):
        parse_url(f"postgresql://db/shop?schema={schema}")


def test_every_statement_lies_in_the_schema() -> None:
    texts = [*load_statements("orders").values(), *load_steps("orders")]
    assert not [text for text in texts if "pledger." in text]
    assert load_statements("orders")["read_run"] == 'SELECT * FROM "orders".run_row WHERE run_key = $1'


def test_whether_a_replica_may_lack_something() -> None:
    assert not parse_url("postgresql://db.example/shop").lossless
    assert not parse_url("postgresql://db.example/shop?failover=lossy").lossless
    found = parse_url("postgresql://db.example/shop?failover=lossless&schema=orders")
    assert (found.lossless, found.schema, found.conninfo) == (True, "orders", "postgresql://db.example/shop")
    with pytest.raises(UsageError, match="failover='never' is not known: use lossless where"):
        parse_url("postgresql://db.example/shop?failover=never")
