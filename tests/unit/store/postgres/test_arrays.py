"""Arrays arrive as they were sent."""

from __future__ import annotations

import re
import struct
from typing import Any

import psycopg
import pytest

from pledger.store.postgres.arrays import Packed, PackedDumper, array_parameters, pack
from pledger.store.postgres.statements import load_statements
from tests import servers

VALUES: dict[str, list[Any]] = {
    "bigint": [0, 1, -1, 2**63 - 1, -(2**63)],
    "int": [0, 1, -1, 2**31 - 1, -(2**31)],
    "float8": [0.0, 1.5, -1e300],
    "boolean": [True, False],
    "text": ["", "order-1", "größer 🎉", 'a "quoted" {one}, NULL'],
    "bytea": [b"", b"\0\1\2", bytes(range(256)) * 40],
}


@pytest.mark.parametrize("kind", VALUES)
def test_an_array_arrives_as_it_was_sent(kind: str) -> None:
    values = VALUES[kind]
    with psycopg.connect(servers.url(), autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.adapters.register_dumper(Packed, PackedDumper)
        for sent in (values, [*values, None], [None], [], values * 500):
            row = connection.execute(f"SELECT $1::{kind}[]", [pack(kind, sent)], binary=True).fetchone()
            assert row == (sent,)


def test_arrays_of_several_types_go_in_one_statement() -> None:
    with psycopg.connect(servers.url(), autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        connection.adapters.register_dumper(Packed, PackedDumper)
        parameters = [pack("bigint", [1, 2]), pack("text", ["a", None]), pack("bytea", [b"x", b"y"])]
        rows = connection.execute("SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])", parameters).fetchall()
        assert rows == [(1, "a", b"x"), (2, None, b"y")]


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(struct.error):
        pack("bigint", [2**63])


def test_the_arrays_of_a_statement_are_known() -> None:
    statements = load_statements("pledger")
    assert array_parameters(statements["step_runs"]) == {0: "bigint", 1: "bigint", 2: "bytea", 3: "bigint"}
    assert array_parameters(statements["new_keys"]) == {}
    for name, sql in statements.items():
        named = re.findall(r"\$(\d+)::\w+\[\]", sql)
        assert sql.count("[]") == len(named), name
        assert array_parameters(sql).keys() == {int(number) - 1 for number in named}, name
