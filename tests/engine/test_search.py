"""Search attributes, memos, and the lists that go by them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pledger import (
    Client,
    RetryPolicy,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    activity,
    workflow,
)
from pledger.client import ResetReapplyType
from pledger.engine.port.filters import EVERY
from pledger.errors import (
    ApplicationError,
    ForbiddenCallError,
    InvalidFilterError,
    PayloadTooLargeError,
    QueryFailedError,
    RunBlockedError,
    UsageError,
)
from tests.engine.harness import Ledger, until

AMOUNT = SearchAttributeKey.for_int("amount")
REGION = SearchAttributeKey.for_keyword("region")
SCORE = SearchAttributeKey.for_float("score")
VIP = SearchAttributeKey.for_bool("vip")
PROMISED = SearchAttributeKey.for_datetime("promised")
TAGS = SearchAttributeKey.for_keyword_list("tags")
REMARK = SearchAttributeKey.for_text("remark")

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def pairs(**given: Any) -> TypedSearchAttributes:
    keys = {key.name: key for key in (AMOUNT, REGION, SCORE, VIP, PROMISED, TAGS, REMARK)}
    return TypedSearchAttributes([SearchAttributePair(keys[name], value) for name, value in given.items()])


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.steps = 0

    @workflow.run
    async def run(self) -> dict[str, Any]:
        seen = {pair.key.name: pair.value for pair in workflow.info().typed_search_attributes}
        await workflow.wait_condition(lambda: self.steps >= 2)
        return {"first": sorted(seen), "memo": workflow.memo()}

    @workflow.signal
    def step(self, amount: int) -> None:
        self.steps += 1
        workflow.upsert_search_attributes([AMOUNT.value_set(amount), REGION.value_unset()])
        workflow.upsert_search_attributes([VIP.value_set(True)])
        workflow.upsert_memo({"steps": self.steps, "note": None})

    @workflow.query
    def amount(self) -> int | None:
        return workflow.info().typed_search_attributes.get(AMOUNT)

    @workflow.query
    def grasping(self) -> None:
        workflow.upsert_memo({"steps": 0})


@workflow.defn
async def sleeper() -> None:
    await asyncio.sleep(3600)


@workflow.defn
async def last_words() -> str:
    """What it says of itself as it ends is kept."""
    workflow.upsert_search_attributes([REGION.value_set("eu"), AMOUNT.value_set(1)])
    workflow.upsert_memo({"why": "it is done"})
    return "done"


async def listed(client: Client, filter_: str = "", **options: Any) -> list[str]:
    return [each.workflow_id async for each in client.list_workflows(filter_, **options)]


async def test_what_a_run_says_of_itself_is_found_shown_and_changed(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Order):
        given = pairs(amount=100, region="eu", tags=["a", "b"], promised=NOON)
        handle = await client.start_workflow(
            Order, id="order-1", search_attributes=given, memo={"note": "by hand", "lines": [1, 2]}
        )
        await client.start_workflow(Order, id="order-2")
        assert await listed(client, "amount = 100 and region = 'eu' and tags = 'b'") == ["order-1"]
        assert await listed(client, "amount is null") == ["order-2"]
        [summary] = [each async for each in client.list_workflows("promised = '2026-11-30T13:00:00+01:00'")]
        assert summary.search_attributes == given
        assert summary.search_attributes[AMOUNT] == 100
        assert summary.memo == {"note": "by hand", "lines": [1, 2]}

        await handle.signal("step", 250)
        await until(lambda: client.count_workflows("amount = 250"))
        assert await handle.query("amount") == 250
        described = await handle.describe()
        assert described.summary.search_attributes == pairs(amount=250, promised=NOON, tags=("a", "b"), vip=True)
        assert described.summary.memo == {"lines": [1, 2], "steps": 1}
        assert await client.count_workflows("tags = 'a' and amount = 100") == 0
        assert await listed(client, "vip") == ["order-1"]

        with pytest.raises(ForbiddenCallError):
            raise (await _failure(handle.query("grasping"))).__cause__ or AssertionError
        await handle.signal("step", 300)
        result = await handle.result()
        assert result == {
            "first": ["amount", "promised", "region", "tags"],
            "memo": {"lines": [1, 2], "steps": 2},
        }
        assert await listed(client, "status = 'completed' and amount between 300 and 400") == ["order-1"]
        await client.handle("order-2").terminate()


async def _failure(call: Any) -> BaseException:
    with pytest.raises(QueryFailedError) as caught:
        await call
    return caught.value


async def test_the_last_transition_counts_too_and_one_activation_is_one_event_of_each_kind(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, last_words):
        handle = await client.start_workflow(last_words, id="order-1")
        assert await handle.result() == "done"
        assert await listed(client, "region = 'eu' and amount = 1") == ["order-1"]
        assert [each.type for each in (await handle.history()).events] == [
            "RunStarted",
            "SearchAttributesUpserted",
            "MemoUpserted",
            "RunCompleted",
        ]
        [summary] = [each async for each in client.list_workflows()]
        assert summary.memo == {"why": "it is done"}


async def test_what_it_starts_with_is_there_before_any_worker(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        await client.start_workflow("sleeper", id="a", search_attributes=pairs(region="eu", score=0.1), memo={"n": 1})
        assert await listed(client, "region = 'eu' and score = 0.1") == ["a"]
        [summary] = [each async for each in client.list_workflows()]
        assert summary.memo == {"n": 1}
        async with ledger.worker(client, sleeper):
            await until(lambda: client.count_workflows("events >= 2"))
        assert await listed(client, "region = 'eu'") == ["a"]


async def test_every_comparison(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        given = {
            "a": pairs(amount=1, score=0.5, region="eu-west", vip=True, tags=["x"], remark="a note"),
            "b": pairs(amount=20, score=-1.5, region="eu_east", vip=False, tags=["x", "y"]),
            "c": pairs(amount=300, region="us", promised=NOON),
            "d": None,
        }
        for workflow_id, attributes in given.items():
            await client.start_workflow("sleeper", id=workflow_id, search_attributes=attributes or ())

        async def found(filter_: str) -> str:
            return "".join(sorted(await listed(client, filter_)))

        expected = {
            "amount > 1": "bc",
            "amount >= 1.5": "bc",
            "amount < 20.0": "a",
            "amount = 1.5": "",
            "amount != 20": "acd",
            "not amount > 1": "ad",
            "not (amount > 1) and amount is not null": "a",
            "amount between 1 and 20": "ab",
            "amount not between 1 and 20": "cd",
            "amount in (1, 300, 9999)": "ac",
            "amount not in (1, 300)": "bd",
            "amount < 99999999999999999999999999": "abc",
            "amount > 99999999999999999999999999 or amount is null": "d",
            "20 <= amount": "bc",
            "amount > -5": "abc",
            "score < 0": "b",
            "score = 0.5": "a",
            "region = 'us'": "c",
            "region like 'eu-%'": "a",
            "starts_with(region, 'eu_')": "b",
            "region starts_with 'eu'": "ab",
            "region > 'eu-west'": "bc",
            "region = 'US'": "",
            "vip": "a",
            "not vip": "bcd",
            "vip = false": "b",
            "vip is true": "a",
            "tags = 'x' and tags = 'y'": "b",
            "tags in ('y', 'z')": "b",
            "tags != 'y'": "acd",
            "tags is null": "cd",
            "promised > '2026-11-30'": "c",
            "promised > now() - interval '2 days' and promised < now() + '3650d'": "c",
            "remark = 'a note'": "a",
            "(amount = 1 or amount = 20) and not (region = 'us' or vip)": "b",
            "workflow_id like 'b%' or workflow_id in ('d')": "bd",
            "WorkflowId = 'a' and ExecutionStatus = 'Running'": "a",
            "duration is null": "abcd",
            "closed_at is not null": "",
            "started_at > now() - '1h'": "abcd",
            "started_at <= now() - interval '1 hour'": "",
            "events = 0": "abcd",
            "true": "abcd",
            "false or amount = 1": "a",
        }
        assert {filter_: await found(filter_) for filter_ in expected} == expected
        assert {filter_: await client.count_workflows(filter_) for filter_ in expected} == {
            filter_: len(ids) for filter_, ids in expected.items()
        }

        assert await listed(client, "order by amount desc") == ["c", "b", "a", "d"]
        assert await listed(client, "order by amount") == ["a", "b", "c", "d"]
        assert await listed(client, "workflow_id != 'd' order by region asc, amount desc") == ["a", "b", "c"]
        assert await listed(client, "order by workflow_id desc", limit=2) == ["d", "c"]
        for workflow_id in given:
            await client.handle(workflow_id).terminate()


async def test_pages_go_on_where_they_ended_in_any_order(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pledger.engine.search.pages.PAGE", 3)
    async with ledger.connect() as client:
        for n in range(20):
            attributes = {"amount": n % 4} if n % 5 else {}
            await client.start_workflow("sleeper", id=f"{n:02}", search_attributes=pairs(**attributes))
        keys = {f"{n:02}": n % 4 if n % 5 else None for n in range(20)}
        assert await listed(client) == sorted(keys, reverse=True)
        for direction in ("", " desc"):
            found = await listed(client, f"order by amount{direction}")
            assert sorted(found) == sorted(keys)
            amounts = [keys[each] for each in found]
            having = [each for each in amounts if each is not None]
            assert amounts == [*sorted(having, reverse=bool(direction)), *[None] * 4]
            assert (
                await listed(client, f"order by amount{direction}, workflow_id", limit=7)
                == sorted(
                    keys, key=lambda each: (keys[each] is None, (keys[each] or 0) * (-1 if direction else 1), each)
                )[:7]
            )
        assert await listed(client, "amount >= 2 order by started_at") == [
            each for each in sorted(keys) if (keys[each] or 0) >= 2
        ]
        for each in keys:
            await client.handle(each).terminate()


@workflow.defn(owner="logistics", deadline=timedelta(hours=1))
class Route:
    """Goes on in successors; may start a child."""

    def __init__(self) -> None:
        self.may_end = False

    @workflow.run
    async def run(self, stops: int, ships: bool) -> dict[str, Any]:
        if ships:
            given = pairs(region="eu", amount=7)
            options: dict[str, Any] = {"search_attributes": given, "memo": {"of": "the route"}}
            await workflow.start_child_workflow(
                sleeper, id="parcel", parent_close_policy=workflow.ParentClosePolicy.ABANDON, **options
            )
        if stops:
            workflow.upsert_search_attributes([AMOUNT.value_set(stops), TAGS.value_set([f"before {stops}"])])
            workflow.upsert_memo({"stops": stops})
            workflow.continue_as_new(stops - 1, False)
        seen = {pair.key.name: pair.value for pair in workflow.info().typed_search_attributes}
        workflow.upsert_search_attributes([REGION.value_set("us"), AMOUNT.value_unset()])
        await workflow.wait_condition(lambda: self.may_end)
        workflow.upsert_memo({"ended": True})
        return {**seen, **workflow.memo()}

    @workflow.signal
    def end(self) -> None:
        self.may_end = True


async def test_a_successor_and_a_run_that_was_reset_go_on_with_them(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Route, sleeper):
        handle = await client.start_workflow(Route, 2, True, id="route", memo={"by": "ada"})
        await until(lambda: client.count_workflows("region = 'us'"))
        runs = [each async for each in client.list_workflows("workflow_id = 'route' order by started_at, run_id")]
        assert [each.memo for each in runs] == [{"by": "ada", "stops": 2}] + [{"by": "ada", "stops": 1}] * 2
        assert [each.owner for each in runs] == ["logistics"] * 3
        assert len({each.deadline for each in runs}) == 1
        assert runs[0].deadline is not None
        assert await listed(client, "amount is null and tags = 'before 1' and status = 'running'") == ["route"]
        await client.handle("route").signal("end")
        assert await handle.result() == {"amount": 1, "tags": ("before 1",), "by": "ada", "stops": 1, "ended": True}
        assert await client.count_workflows("region = 'us'") == 1

        history = await client.handle("route").history()
        begun = next(number for number, each in enumerate(history.events, 1) if each.type == "RunStarted")
        again = await client.handle("route").reset(begun, reason="once more", reapply=ResetReapplyType.NONE)
        await until(lambda: client.count_workflows("region = 'us' and status = 'running'"))
        [summary] = [each async for each in client.list_workflows("workflow_id = 'route' and status = 'running'")]
        assert summary.memo == {"by": "ada", "stops": 1}
        assert summary.search_attributes == pairs(region="us", tags=("before 1",))
        assert summary.owner == "logistics"
        assert summary.deadline is not None
        await again.signal("end")
        await again.result()
        last = next(number for number, each in enumerate(history.events, 1) if each.type == "MemoUpserted")
        again = await client.handle("route").reset(last, reason="and once more", reapply=ResetReapplyType.NONE)
        await again.result()  # the signal lies before the point
        [summary] = [each async for each in client.list_workflows("workflow_id = 'route' order by started_at desc")][:1]
        assert summary.memo["by"] == "ada"
        assert summary.search_attributes[REGION] == "us"
        await client.handle("parcel").terminate()


async def test_a_child_has_what_it_is_started_with_and_is_found_by_its_parent(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Route, sleeper):
        handle = await client.start_workflow(Route, 0, True, id="route")
        await until(lambda: client.count_workflows("parent = 'route' and events > 1"))
        assert await listed(client, "parent is not null") == ["parcel"]
        assert await listed(client, "ParentWorkflowId like 'rou%' and amount = 7") == ["parcel"]
        assert await listed(client, "not (parent = 'route')") == ["route"]
        described = await client.handle("parcel").describe()
        assert described.summary.memo == {"of": "the route"}
        assert described.summary.search_attributes == pairs(region="eu", amount=7)
        await handle.signal("end")
        await handle.result()
        await client.handle("parcel").terminate()


@workflow.defn
class Picking:
    """In a phase that is late, then in one that is not."""

    def __init__(self) -> None:
        self.is_picked = self.is_packed = False

    @workflow.run
    async def run(self) -> None:
        async with workflow.phase("picking", owner="warehouse", deadline=timedelta(milliseconds=1)):
            await workflow.wait_condition(lambda: self.is_picked)
        async with workflow.phase("packing", owner="dispatch", deadline=timedelta(days=1)):
            await workflow.wait_condition(lambda: self.is_packed, name="the box", deadline=timedelta(hours=1))

    @workflow.signal
    def picked(self) -> None:
        self.is_picked = True

    @workflow.signal
    def packed(self) -> None:
        self.is_packed = True


async def test_a_phase_that_is_overdue_needs_attention_until_it_is_over(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, Picking):
        handle = await client.start_workflow(Picking, id="order")
        await until(lambda: client.count_workflows(view="needs-attention"))
        [found] = [each async for each in client.list_workflows(view="needs-attention")]
        assert found.attention == "phase picking is overdue (warehouse)"
        await handle.signal("picked")
        await until(lambda: client.count_workflows("act_by > now()"))
        assert await listed(client, view="needs-attention") == []
        assert await listed(client, "act_by < now() + '2h' and act_by > now() + '2h'") == [
            "order"
        ]  # the wait, the phase
        assert await listed(client, "act_by between now() - '1h' and now()") == []
        begun = (await handle.history()).events
        last = max(number for number, each in enumerate(begun, 1) if each.type == "PhaseBegun")
        again = await handle.reset(last, reason="the phase is still open")
        assert await listed(client, "act_by > now() + '2h' and status = 'running'") == ["order"]
        await again.signal("packed")
        await again.result()
        assert await listed(client, "act_by is not null") == []


@workflow.defn(owner="by the code", deadline=timedelta(hours=3))
async def known_to_the_worker() -> None:
    await asyncio.sleep(3600)


async def test_who_starts_it_by_its_name_need_not_know_its_owner(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        await client.start_workflow("known_to_the_worker", id="order")
        assert await listed(client, "owner is null and deadline is null") == ["order"]
        async with ledger.worker(client, known_to_the_worker):
            await until(lambda: client.count_workflows("owner = 'by the code' and deadline > now() + '2h'"))
        await client.handle("order").terminate()


@activity.defn(retry_policy=RetryPolicy(initial_interval=timedelta(hours=1), maximum_attempts=3))
async def refuses() -> None:
    raise ApplicationError("not today")


@workflow.defn(owner="billing", deadline=timedelta(hours=2))
async def charging() -> None:
    await refuses()


@workflow.defn
async def broken() -> None:
    raise ValueError("a bug")


async def test_the_views_show_what_needs_somebody(ledger: Ledger) -> None:
    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, charging, broken, sleeper, refuses):
        await client.start_workflow(sleeper, id="well")
        await client.start_workflow(charging, id="retries")
        await client.start_workflow(broken, id="breaks")
        await until(lambda: client.count_workflows("retrying"))
        await until(lambda: client.count_workflows("blocked"))
        found = [each async for each in client.list_workflows(view="needs-attention")]
        assert [(each.workflow_id, each.attention) for each in found] == [
            ("retries", "retrying"),
            ("breaks", "blocked"),
        ]
        assert found[0].owner == "billing"
        assert found[0].deadline is not None
        assert await listed(client, "owner = 'billing' and deadline < now() + '3h'") == ["retries"]
        assert await listed(client, "not blocked", view="needs-attention") == ["retries"]
        assert await client.count_workflows(view="needs-attention") == 2
        assert await listed(client, view="oldest-open", limit=2) == ["well", "retries"]
        with pytest.raises(
            InvalidFilterError, match="there is no view 'nothing'; they are needs-attention, oldest-open"
        ):
            await listed(client, view="nothing")
        await client.handle("well").terminate()
        await client.handle("retries").terminate()
        await client.handle("breaks").terminate()


async def test_what_is_due_and_nobody_takes_is_overdue_unless_somebody_has_paused_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pledger.engine.search.meaning.OVERDUE_MS", -1_000)
    monkeypatch.setattr("pledger.engine.search.views.OVERDUE_MS", -1_000)
    async with ledger.connect() as client:
        await client.start_workflow("sleeper", id="waits")
        [found] = [each async for each in client.list_workflows(view="needs-attention")]
        assert (found.workflow_id, found.attention) == ("waits", "overdue")
        await client.pause("type", "sleeper")
        assert await listed(client, view="needs-attention") == []
        assert await listed(client, "paused") == ["waits"]
        await client.resume("type", "sleeper")
        assert await listed(client, "paused") == []
        await client.handle("waits").terminate()


@pytest.mark.parametrize(
    ("filter_", "message"),
    [
        ("amout > 1", "there is no field 'amout'; is it amount?"),
        ("status = 'running' and amout > 1", "\n  status = 'running' and amout > 1\n                         ^"),
        ("nope = 1", "the search attributes are amount (int), tags (keyword_list)"),
        ("amount = 'many'", "the search attribute amount is int, and 'many' is none"),
        ("amount like '1%'", "amount is no text, which alone has a beginning"),
        ("tags > 'a'", "tags is a list: ask for what is in it by = or in"),
        ("order by tags", "a list cannot go by tags, which has many values"),
        ("order by blocked", "a list cannot go by blocked, which is true or false"),
        ("order by parent", "a list cannot go by parent"),
        ("order by", "`order by` wants a name"),
        ("order by amount sideways", "`order by` takes names, each with asc or desc"),
        ("amount = null", "write it as: amount is null"),
        ("status = blocked", "a text has single quotes: 'blocked'"),
        ("status = 'blocked'", "there is no status 'blocked': say blocked = true"),
        ("status > 'a'", "statuses have no order"),
        ("workflow_id like '%x'", "`like` asks for a prefix"),
        ("workflow_id like 'a_b%'", "starts_with(workflow_id, 'order_')"),
        ("duration > 5", "duration is compared with a duration, like '90s'"),
        ("duration > '5 parsecs'", "duration is compared with a duration"),
        ("workflow_id in (select workflow_id from pledger_chain)", "is not a comparison"),
        ("amount in (select 1)", "is not a comparison"),
        ("amount = (select 1)", "is none"),
        ("amount = 1; drop table pledger_run", "one filter is one condition"),
        ("amount = 1 union select 2", "does not parse"),
        ("amount + 1 = 2", "is not the name of a field"),
        ("run.amount = 1", "is not the name of a field"),
        ("lower(workflow_id) = 'x'", "is not the name of a field"),
        ("amount", "amount is not compared with anything"),
        ("(" * 60 + "amount = 1" + ")" * 60, "nested"),
        ("amount = 1 or " * 2_000 + "amount = 1", "characters, the most is 10,000"),
        ("workflow_id = 'x", "is a quote left open?"),
        ("workflow_id glob 'x*'", "there is no glob"),
    ],
)
async def test_a_filter_that_cannot_be_says_what_is_wrong_and_where(
    file_ledger: Ledger, filter_: str, message: str
) -> None:
    async with file_ledger.connect() as client:
        await client.start_workflow("sleeper", id="a", search_attributes=pairs(amount=1, tags=["a"]))
        with pytest.raises(InvalidFilterError) as caught:
            await client.count_workflows(filter_)
        assert message in str(caught.value)


async def test_a_long_chain_of_conditions_is_flat(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        await client.start_workflow("sleeper", id="a", search_attributes=pairs(amount=1))
        assert await client.count_workflows(" or ".join(f"amount = {n}" for n in range(400))) == 1
        assert await client.count_workflows(" and ".join(f"amount != {n}" for n in range(2, 400))) == 1
        await client.handle("a").terminate()


async def test_a_name_has_one_kind(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        await client.start_workflow("sleeper", id="a", search_attributes=pairs(amount=1))
        other = SearchAttributeKey.for_keyword("amount")
        with pytest.raises(UsageError, match="'amount' is of kind int in this namespace, and keyword here"):
            await client.start_workflow("sleeper", id="b", search_attributes=[SearchAttributePair(other, "many")])
        async with ledger.connect("elsewhere") as elsewhere:
            await elsewhere.start_workflow("sleeper", id="b", search_attributes=[SearchAttributePair(other, "many")])
            assert await listed(elsewhere, "amount = 'many'") == ["b"]
            with pytest.raises(InvalidFilterError, match="there is no field 'region'"):
                await listed(elsewhere, "region = 'eu'")
            await elsewhere.handle("b").terminate()
        await client.handle("a").terminate()


@workflow.defn
async def contradicts() -> None:
    """Code cannot ask what others have: what it says is kept, and a filter asks for both."""
    workflow.upsert_search_attributes([SearchAttributeKey.for_keyword("amount").value_set("many")])


async def test_code_that_gives_another_kind_is_not_stopped_by_it(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, contradicts):
        await client.start_workflow("sleeper", id="a", task_queue="nobody", search_attributes=pairs(amount=1))
        await client.execute_workflow(contradicts, id="b")
        assert await listed(client, "amount = 1") == ["a"]
        assert await listed(client, "amount = 'many'") == ["b"]
        assert await listed(client, "amount is not null") == ["b", "a"]
        with pytest.raises(InvalidFilterError, match="of several kinds: int, keyword"):
            await listed(client, "order by amount")
        await client.handle("a").terminate()


@workflow.defn
async def swollen(bytes_: int) -> None:
    workflow.upsert_memo({"much": "x" * bytes_})


@workflow.defn
async def scattered(number: int) -> None:
    keys = [SearchAttributeKey.for_int(f"a{n}") for n in range(number)]
    workflow.upsert_search_attributes([key.value_set(1) for key in keys])


@pytest.mark.parametrize(
    ("definition", "size", "error"), [(swollen, 300_000, PayloadTooLargeError), (scattered, 101, UsageError)]
)
async def test_bounds_block_at_the_producing_line(
    ledger: Ledger, definition: Any, size: int, error: type[Exception]
) -> None:
    ledger.replay_at_end = False
    async with ledger.connect() as client, ledger.worker(client, definition):
        handle = await client.start_workflow(definition, size, id="a")
        with pytest.raises(RunBlockedError, match=error.__name__):
            await handle.result()
        await handle.terminate()


async def test_what_retention_takes_is_found_no_more(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, last_words):
        await client.execute_workflow(last_words, id="a")
        store = client.internals.store
        [row] = await store.list_runs("default", EVERY, 10)
        await asyncio.sleep(0.005)
        assert await store.forget_chains([row.chain_key], 0) == 1
        assert await store.attribute_kinds("default") == []
        assert await store.read_labels([row.run_key]) != {}
        assert (await store.read_labels([row.run_key]))[row.run_key].memo is None
        with pytest.raises(InvalidFilterError, match="no run has search attributes"):
            await listed(client, "region = 'eu'")
