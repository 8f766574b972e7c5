"""URLs that tests make of the one that they are given."""

from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from pledger.store.postgres.address import parse_url
from tests import servers

PLAIN = "postgresql://postgres@127.0.0.1:5432/postgres"
FULL = "postgresql://ada%40shop:a%2Fb@one:1,two:2/shop?sslmode=require&application_name=it"
QUERY = "postgresql:///?host=/tmp&user=ada&password=secret&dbname=shop"


def parts(url: str) -> dict[str, object]:
    return dict(conninfo_to_dict(url))


@pytest.mark.parametrize("url", [PLAIN, FULL, QUERY])
def test_what_is_changed_changes_and_all_else_stays(url: str) -> None:
    before = parts(url)
    assert parts(servers.changed(url)) == before
    other = servers.changed(url, user="b@b", password="p:/w")
    assert parts(other) == before | {"user": "b@b", "password": "p:/w"}
    assert servers.user_of(other) == "b@b"
    nameless = parts(servers.changed(url, user="b"))
    assert (nameless["user"], "password" in nameless) == ("b", False)
    assert parts(servers.changed(url, dbname="x y")) == before | {"dbname": "x y"}
    assert parts(servers.changed(url, connect_timeout=5, application_name="me")) == before | {
        "connect_timeout": "5",
        "application_name": "me",
    }
    ledger = servers.changed(url, schema="one")
    assert parse_url(ledger).schema == "one"
    assert parts(servers.changed(ledger, schema=None)) == before


def test_who_comes() -> None:
    assert [servers.user_of(each) for each in (PLAIN, FULL, QUERY)] == ["postgres", "ada@shop", "ada"]
