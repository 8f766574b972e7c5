"""Laws of filters: all stores find the same runs in the same order, and no text of a filter ever is SQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pledger.engine.port.filters import EVERY, NO_LABELS, AllOf, Attribute, Filter, Order, PhaseRow
from pledger.engine.port.operations import Append, Block, StartRun
from pledger.engine.port.posts import StartChild
from pledger.engine.port.records import RunRow, TaskRow
from pledger.engine.port.verbs import Store
from pledger.engine.search import meaning
from pledger.engine.search.pages import beyond
from pledger.engine.search.text import parse
from pledger.errors import InvalidFilterError
from pledger.history.transition import StoredTransition
from pledger.store.memory import MemoryStore
from pledger.store.postgres import open_postgres
from pledger.store.sqlite import open_sqlite
from tests import servers

NOW = 1_700_000_000_000
KINDS = {
    "amount": ["int"],
    "score": ["float"],
    "region": ["keyword"],
    "tags": ["keyword_list"],
    "vip": ["bool"],
    "promised": ["datetime"],
    "mixed": ["int", "keyword"],
}
WORDS = ("eu", "eu-west", "EU", "it's", "", "ø", "z\U0010ffff", "%", "a_b", "' OR 1=1 --")


def _attributes(number: int) -> list[Attribute]:
    """Of the run with this number: each of the kinds, and gaps."""
    word = WORDS[number % len(WORDS)]
    found = [
        Attribute("amount", "int", ((number % 5) * 10 - 10,)),
        Attribute("score", "float", (number * 0.25 - 1,)),
        Attribute("region", "keyword", (word,)),
        Attribute("tags", "keyword_list", (word, WORDS[-1])),
        Attribute("vip", "bool", (number % 2,)),
        Attribute("promised", "datetime", (NOW + number * 1_000,)),
        Attribute("mixed", "int", (number,)) if number % 2 else Attribute("mixed", "keyword", (str(number),)),
    ]
    return [each for at, each in enumerate(found) if (number + at) % 3]


#: The numbers of runs that start a child each.
PARENTS = (5, 9, 10)


async def _fill(store: Store) -> None:
    """Two dozen runs in every state, with a page's worth of equal times."""
    session = (await store.open_session("host:1", "default", "default", "code-1", 60_000)).session_key
    for number in range(24):
        first = Append(0, 0, 0, StoredTransition(1, b"", bytes(8)), 2, None, NOW)
        start = StartRun(
            "default", f"run-{WORDS[number % len(WORDS)]}-{number}", f"r{number}", ("fulfil", "refund")[number % 2],
            "default", b"", b"", NOW + number // 3, owner=None if number % 4 == 0 else session,
            first=None if number % 4 == 0 else first, attributes=_attributes(number),
            answers_for=("ada", None)[number % 2], deadline_ms=(None, NOW + 5, NOW + 9)[number % 3],
        )  # fmt: skip
        [started] = await store.commit([start])
        row = await store.read_run(started.run_key)  # type: ignore[union-attr]
        await store.commit(_further(row, number))


def _further(row: RunRow, number: int) -> list[Any]:
    if row.owner is None:
        return []
    step = StoredTransition(3, b"", bytes(8))
    match number % 5:
        case 1:
            return [Append(row.run_key, 1, 2, step, 4, None, NOW, "completed")]
        case 2:
            return [Append(row.run_key, 1, 2, step, 4, None, NOW + number, "failed")]
        case 3:
            return [Block(row.run_key, 1, b'{"reason": "bug"}', "code-1")]
        case _:
            task = TaskRow(
                row.run_key, 1, "default", row.workflow_id, row.run_id, row.workflow_type, "default", "charge",
                "queued", 1 + number % 2, NOW, b"", NOW,
            )  # fmt: skip
            posts = [_child(number)] if number in PARENTS else []
            phases = [PhaseRow(3, "phase", "picking", "ada", NOW + 60_000 + number * 10_000)] if number % 2 else []
            return [Append(row.run_key, 1, 2, step, 4, NOW + number, NOW, tasks=[task], posts=posts, phases=phases)]


def _child(number: int) -> StartChild:
    start = StartRun("default", f"child-{number}", f"c{number}", "fulfil", "default", b"", b"", NOW)
    return StartChild(3, start, "abandon", "")


@dataclass
class Stores:
    """Three ledgers with the same runs in them."""

    runner: asyncio.Runner
    stores: list[Store]

    def everywhere(self, where: Filter, order: tuple[Order, ...], limit: int = 100) -> list[list[str]]:
        async def ask() -> list[list[str]]:
            found = []
            for store in self.stores:
                rows = await store.list_runs("default", where, limit, order)
                assert await store.count_runs("default", where) == len(rows) or len(rows) == limit
                found.append([row.run_id for row in rows])
            return found

        return self.runner.run(ask())

    def in_pages(self, where: Filter, order: tuple[Order, ...], size: int) -> list[list[str]]:
        async def pages(store: Store) -> list[str]:
            found: list[str] = []
            asked = where
            while rows := await store.list_runs("default", asked, size, order):
                found += [row.run_id for row in rows]
                labels = await store.read_labels([rows[-1].run_key])
                asked = AllOf((where, beyond(order, rows[-1], labels.get(rows[-1].run_key, NO_LABELS))))
            return found

        async def ask() -> list[list[str]]:
            return [await pages(store) for store in self.stores]

        return self.runner.run(ask())


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with servers.schema() as url, asyncio.Runner() as runner:
        path = Path(tmp_path_factory.mktemp("filters")) / "ledger.db"
        opened: list[Store] = [MemoryStore()]
        opened += [open_sqlite(str(path)), runner.run(open_postgres(url))]
        for store in opened:
            runner.run(_fill(store))
        yield Stores(runner, opened)
        for store in opened:
            runner.run(store.close())


# Filters that are drawn as texts --------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


NUMBERS = st.sampled_from(["-10", "0", "10", "9.5", "-0.25", "1e3", "99999999999999999999"])
TEXTS = st.sampled_from(WORDS).map(quoted)
SIGNS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
TIMES = st.sampled_from([f"'2023-11-14T22:13:{second}Z'" for second in ("19", "20", "21.003", "30")])


def _compared(names: list[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    name = st.sampled_from(names)
    several = st.lists(values, min_size=1, max_size=3).map(", ".join)
    return st.one_of(
        st.builds("{} {} {}".format, name, SIGNS, values),
        st.builds("{} in ({})".format, name, several),
        st.builds("{} not in ({})".format, name, several),
        st.builds("{} between {} and {}".format, name, values, values),
        st.builds("{} is null".format, name),
        st.builds("{} is not null".format, name),
    )


LEAVES = st.one_of(
    _compared(["amount", "score", "mixed", "events"], NUMBERS),
    _compared(["region", "workflow_id", "owner"], TEXTS),
    _compared(["promised", "started_at", "closed_at", "deadline"], TIMES),
    st.builds("starts_with({}, {})".format, st.sampled_from(["region", "workflow_id", "tags"]), TEXTS),
    st.builds("tags {} {}".format, st.sampled_from(["=", "!="]), TEXTS),
    st.builds("status {} {}".format, st.sampled_from(["=", "!="]), st.sampled_from(["'running'", "'failed'"])),
    st.sampled_from(["status in ('failed', 'completed')", "vip", "not vip", "vip is null", "blocked", "retrying"]),
    st.sampled_from(["parent = 'run-eu-10'", "parent != 'run-eu-10'", "parent is null", "parent like 'run-%'"]),
    st.sampled_from(["warned", "act_by < '2023-11-14T22:15:40Z'", "act_by is null", "not act_by > now()"]),
    st.sampled_from(["overdue", "duration > '1s'", "duration is null", "type = 'fulfil'", "mixed = '4'", "true"]),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=6,
)
ORDERS = st.lists(
    st.builds(
        "{} {}".format,
        st.sampled_from(["started_at", "closed_at", "workflow_id", "amount", "score", "region", "promised", "owner"]),
        st.sampled_from(["asc", "desc"]),
    ),
    max_size=3,
    unique_by=lambda each: each.split()[0],
).map(", ".join)
KNOWN = meaning.Known(KINDS, NOW + 120_000, EVERY)


def _read(text: str) -> tuple[Filter, tuple[Order, ...]]:
    written = parse(text)
    return meaning.conditions(written, KNOWN), meaning.order(written, KNOWN)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filter_=FILTERS, order=ORDERS)
@example("started_at <= '2023-11-14T22:13:20.003Z' and (blocked or retrying)", "started_at desc")
def test_all_stores_find_the_same_runs(stores: Stores, filter_: str, order: str) -> None:
    where, by = _read(f"{filter_}{' order by ' + order if order else ''}")
    memory, sqlite, postgres = stores.everywhere(where, by)
    assert sqlite == memory
    assert postgres == memory


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(filter_=LEAVES, order=ORDERS, size=st.integers(1, 9))
def test_pages_put_together_are_the_list(stores: Stores, filter_: str, order: str, size: int) -> None:
    where, by = _read(f"{filter_}{' order by ' + order if order else ''}")
    [whole, *_] = stores.everywhere(where, by)
    assert stores.in_pages(where, by, size) == [whole] * 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(filter_=FILTERS)
def test_two_values_are_all_there_are(stores: Stores, filter_: str) -> None:
    """A condition or its opposite holds, whatever has no value."""
    where, _ = _read(filter_)
    opposite, _ = _read(f"not ({filter_})")
    found, others = stores.everywhere(where, ())[0], stores.everywhere(opposite, ())[0]
    assert sorted(found + others) == sorted(
        [*(f"r{number}" for number in range(24)), *(f"c{each}" for each in PARENTS)]
    )


ATTACKS = [
    "workflow_id = '' or 1=1 --'",
    "workflow_id = ''; drop table pledger_run; --'",
    "1=1",
    "workflow_id = 'x' union select head from pledger_run",
    "exists (select 1 from pledger_run)",
    "workflow_id = (select run_id from pledger_run limit 1)",
    "pg_sleep(10) is null",
    "amount = load_extension('x')",
    "workflow_id = chr(39) || 'x'",
    "cast(amount as text) = '1'",
    "case when 1=1 then true else false end",
    'amount = "1"',
    "run.workflow_id = 'x'",
    "$1 = 'x'",
    "amount = ?",
    "amount = :x",
    "workflow_id = E'\\x27'",
    "status = 'running' limit 1",
    "status = 'running' order by (select 1)",
    "status = 'running' order by started_at; drop table run",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_no_condition_on_a_run_is_refused(attack: str) -> None:
    with pytest.raises(InvalidFilterError):
        _read(attack)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40), name=st.sampled_from(["workflow_id", "region", "tags"]))
def test_a_text_is_compared_with_and_is_nothing_else(stores: Stores, text: str, name: str) -> None:
    try:
        where, by = _read(f"{name} = {quoted(text)}")
    except InvalidFilterError:
        return  # holds what no name can
    found = stores.everywhere(where, by)
    expected = [
        f"r{number}"
        for number in reversed(range(24))
        if (name != "workflow_id" and any(each.name == name and text in each.values for each in _attributes(number)))
        or (name == "workflow_id" and text == f"run-{WORDS[number % len(WORDS)]}-{number}")
    ]
    assert found == [expected] * 3


@given(text=st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidFilterError):
        _read(text)
