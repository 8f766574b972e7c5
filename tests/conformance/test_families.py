"""Parents, children, and what one run sends to another: written with the sender's transition, or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pledger.engine.port.answers import Reply
from pledger.engine.port.filters import EVERY
from pledger.engine.port.operations import IdConflictPolicy, Operation
from pledger.engine.port.posts import ClosePolicy, Post, StartChild, notice_id
from pledger.engine.port.records import RunRow
from pledger.engine.port.verbs import Store
from pledger.history.reuse import IdReusePolicy
from tests.conformance.harness import (
    NOW,
    append,
    claim,
    open_session,
    owned_run,
    ownerless_run,
    signal,
    start,
    terminate,
    write,
)


def child(
    parent: RunRow,
    workflow_id: str,
    policy: ClosePolicy = "terminate",
    reuse: IdReusePolicy = IdReusePolicy.REJECT_DUPLICATE,
    n: int = 1,
) -> StartChild:
    event_id = parent.last_event + n
    begun = start(workflow_id, conflict=IdConflictPolicy.FAIL, reuse=reuse)
    return StartChild(event_id, begun, policy, notice_id(parent.run_id, event_id, "start"))


def post(sender: RunRow, workflow_id: str, run_id: str | None = None, *, n: int = 1, **changes: Any) -> Post:
    event_id = sender.last_event + n
    fields: dict[str, Any] = {
        "kind": "signal",
        "message_id": f"{sender.run_id} {event_id}",
        "name": "approve",
        "body": b"[1]",
        "notice_id": notice_id(sender.run_id, event_id, "post"),
    }
    return Post(event_id, "default", workflow_id, run_id, **fields | changes)


async def notices(store: Store, run: RunRow) -> list[tuple[str, bytes]]:
    return [(each.name, each.body) for each in await store.read_inbox(run.chain_key) if each.kind == "notice"]


async def with_child(store: Store, policy: ClosePolicy = "terminate") -> tuple[int, RunRow, RunRow]:
    """The session, the parent, and its child, which the session has too."""
    session = await open_session(store)
    parent = await owned_run(store, session, "parent")
    assert await write(store, append(parent, posts=[child(parent, "child", policy)])) is Reply.WON
    [row] = await claim(store, session)
    return session, await store.read_run(parent.run_key), row


def closing(run: RunRow, **changes: Any) -> Operation:
    return append(run, **{"closed": "completed", "report": b"ended so", "has_dependants": True} | changes)


async def test_a_child_is_born_with_the_transition_that_asks_for_it(store: Store) -> None:
    _, parent, row = await with_child(store)
    assert (row.workflow_id, row.run_id, row.status) == ("child", "run-of-child", "running")
    assert await notices(store, parent) == [("started", b"run-of-child")]
    [found] = await store.read_children(parent.run_key, 10)
    assert (found.event_id, found.policy, found.row.run_key) == (3, "terminate", row.run_key)
    asked = await store.read_parent(row.chain_key)
    assert asked is not None
    assert asked.run_key == parent.run_key
    assert await store.read_parent(parent.chain_key) is None
    assert await store.read_children(row.run_key, 10) == []


async def test_of_an_append_that_is_lost_no_child_is_born(store: Store) -> None:
    parent = await owned_run(store, await open_session(store), "parent")
    lost = append(parent, fence=parent.fence + 1, posts=[child(parent, "child"), post(parent, "parent", n=2)])
    assert await write(store, lost) is Reply.LOST
    assert await store.find_run("default", "child") is None
    assert await store.read_inbox(parent.chain_key) == []


async def test_what_is_written_twice_since_its_answer_was_lost_is_there_once(store: Store) -> None:
    parent = await owned_run(store, await open_session(store), "parent")
    operation = append(parent, posts=[child(parent, "child"), post(parent, "parent", n=2)])
    assert [await write(store, operation) for _ in range(2)] == [Reply.WON, Reply.WON]
    assert len(await store.read_children(parent.run_key, 10)) == 1
    assert len(await store.read_inbox(parent.chain_key)) == 3  # two notices, and what it wrote to itself


async def test_a_taken_id_concerns_its_own_child_and_nobody_else_of_the_batch(store: Store) -> None:
    session = await open_session(store)
    parent, other = await owned_run(store, session, "parent"), await owned_run(store, session, "other")
    await owned_run(store, session, "taken")
    posts = [child(parent, "taken"), child(parent, "free", n=2), child(parent, "free", n=3)]
    batch = [append(parent, posts=posts), append(other, posts=[child(other, "free")]), start("later")]
    answers = await store.commit(batch)
    assert answers[:2] == [Reply.WON, Reply.WON]
    assert [name for name, _ in await notices(store, parent)] == ["taken", "started", "taken"]
    assert await notices(store, other) == [("taken", b"run-of-free")]
    assert len(await store.read_children(parent.run_key, 10)) == 1
    assert await store.count_runs("default", EVERY) == 5


@pytest.mark.parametrize(
    ("reuse", "status", "verdict"),
    [
        (IdReusePolicy.REJECT_DUPLICATE, "failed", "taken"),
        (IdReusePolicy.ALLOW_DUPLICATE, "completed", "started"),
        (IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY, "completed", "taken"),
        (IdReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY, "failed", "started"),
    ],
)
async def test_the_id_of_a_run_that_has_ended(store: Store, reuse: IdReusePolicy, status: str, verdict: str) -> None:
    session = await open_session(store)
    parent, other = await owned_run(store, session, "parent"), await owned_run(store, session, "child", run_id="first")
    assert await write(store, append(other, closed=status)) is Reply.WON
    assert await write(store, append(parent, posts=[child(parent, "child", reuse=reuse)])) is Reply.WON
    assert [name for name, _ in await notices(store, parent)] == [verdict]


async def test_a_message_says_what_became_of_it(store: Store) -> None:
    session = await open_session(store)
    sender = await owned_run(store, session, "sender")
    waits, ended = await ownerless_run(store, "waits"), await owned_run(store, session, "ended")
    assert await write(store, append(ended, closed="completed")) is Reply.WON
    posts = [
        post(sender, "waits"),
        post(sender, "ended", n=2),
        post(sender, "nobody", n=3),
        post(sender, "waits", "another run", n=4),
        post(sender, "waits", waits.run_id, n=5, room=2),
        post(sender, "waits", n=6, notice_id="", kind="cancel", name="", body=b"why"),
    ]
    assert await write(store, append(sender, posts=posts)) is Reply.WON
    told = [name for name, _ in await notices(store, sender)]
    assert told == ["sent", "closed", "not_found", "not_found", "inbox_full"]
    kinds = [each.kind for each in await store.read_inbox(waits.chain_key)]
    assert kinds == ["start", "signal", "cancel"]


async def test_a_message_wakes_who_is_let_go_of_and_tells_the_owner(store: Store) -> None:
    session, elsewhere = await open_session(store), await open_session(store, "host:2")
    sender, owned = await owned_run(store, session, "sender"), await owned_run(store, elsewhere, "owned")
    assert await write(store, append(sender, posts=[post(sender, "owned")])) is Reply.WON
    assert await store.woken_runs(elsewhere) == [owned.run_key]
    assert await store.woken_runs(session) == []


async def test_to_its_own_child_a_run_may_write_with_its_start(store: Store) -> None:
    session = await open_session(store)
    parent = await owned_run(store, session, "parent")
    letter = post(parent, "child", "run-of-child", n=2)
    assert await write(store, append(parent, posts=[child(parent, "child"), letter])) is Reply.WON
    [row] = await claim(store, session)
    assert [each.kind for each in await store.read_inbox(row.chain_key)] == ["start", "signal"]
    assert [name for name, _ in await notices(store, parent)] == ["started", "sent"]


async def test_a_run_may_be_born_with_children(store: Store) -> None:
    session = await open_session(store)
    born = await owned_run(store, session, "template")
    first = append(born, run_key=0, fence=0, expected_event=0, posts=[child(born, "child")])
    first.transition.first_event_id  # noqa: B018 - that of the template: the checksum is all that counts here
    answer = await write(store, start("parent", owner=session, first=first))
    row = await store.find_run("default", "parent")
    assert row is not None, answer
    assert [each.row.workflow_id for each in await store.read_children(row.run_key, 10)] == ["child"]


async def test_the_end_of_a_child_is_a_notice_to_its_parent(store: Store) -> None:
    session, parent, row = await with_child(store)
    await store.woken_runs(session)
    assert await write(store, closing(row)) is Reply.WON
    assert (await notices(store, parent))[-1] == ("ended", b"ended so")
    assert await store.woken_runs(session) == [parent.run_key]
    # A repeated one changes nothing.
    assert await write(store, closing(row)) is Reply.WON
    assert len(await notices(store, parent)) == 2


async def test_who_is_ended_from_outside_has_a_parent_too(store: Store) -> None:
    _, parent, row = await with_child(store)
    assert await write(store, terminate(row, report=b"ended")) is Reply.WON
    assert (await notices(store, parent))[-1] == ("ended", b"ended")
    assert await write(store, terminate(await ownerless_run(store, "nobody's"), report=b"ended")) is Reply.WON


async def test_the_ends_of_parent_and_child_in_every_order(store: Store) -> None:
    """Parent: cancelled, ended, let go of. Child: ends, is asked to stop. In one batch or one after the other."""

    async def arrange(number: int) -> dict[str, Callable[[], Awaitable[Operation]]]:
        session = await open_session(store)
        parent = await owned_run(store, session, f"parent-{number}")
        assert await write(store, append(parent, posts=[child(parent, f"child-{number}")])) is Reply.WON
        row = next(each for each in await claim(store, session) if each.workflow_id == f"child-{number}")
        keys[number] = parent.run_key, row.run_key

        async def end_parent() -> Operation:
            return closing(await store.read_run(parent.run_key), report=None)

        async def end_child() -> Operation:
            return closing(await store.read_run(row.run_key))

        async def cancel_child() -> Operation:
            return signal(await store.read_run(row.run_key), f"cancel-{number}", kind="cancel", name="")

        return {"parent": end_parent, "child": end_child, "cancel": cancel_child}

    keys: dict[int, tuple[int, int]] = {}
    number = 0
    for order in itertools.permutations(["parent", "child", "cancel"]):
        for together in (True, False):
            number += 1
            moves = await arrange(number)
            if together:
                answers = await store.commit([await moves[each]() for each in order])
            else:
                answers = [await write(store, await moves[each]()) for each in order]
            told = dict(zip(order, answers, strict=True))
            assert (told["parent"], told["child"]) == (Reply.WON, Reply.WON), (order, together)
            parent, row = [await store.read_run(key) for key in keys[number]]
            assert (parent.status, row.status) == ("completed", "completed")
            inbox = await store.read_inbox(parent.chain_key)
            assert inbox == []  # what came before its end is settled, what comes later is not for it
            was_first = order.index("child") < order.index("parent")
            messages = [
                await store.read_message(parent.chain_key, notice_id(parent.run_id, 3, what))
                for what in ("start", "end")
            ]
            assert [each and each.verdict for each in messages] == ["undelivered", "undelivered" if was_first else None]
            assert await store.read_undelivered(parent.chain_key) == []
            # What is still to be seen to is nobody.
            while (parting := await store.read_parting("default", 10)) is not None:
                assert parting.children == ()
                await store.settle_parting(parting.run_key, [])


async def test_a_parting_is_left_for_those_that_are_not_to_outlive_their_parent(store: Store) -> None:
    session = await open_session(store)
    parent = await owned_run(store, session, "parent")
    policies: list[ClosePolicy] = ["terminate", "abandon", "request_cancel", "terminate"]
    posts = [child(parent, f"child-{n}", policy, n=n) for n, policy in enumerate(policies, 1)]
    assert await write(store, append(parent, posts=posts)) is Reply.WON
    parent = await store.read_run(parent.run_key)
    rows = {each.workflow_id: each for each in await claim(store, session)}
    assert await write(store, closing(rows["child-4"])) is Reply.WON
    place = (session, NOW, "default", "default", {"fulfil": "code-1"}, ())
    assert (await store.look(*place)).partings is False
    assert await write(store, closing(parent)) is Reply.WON
    assert (await store.look(*place)).partings is True
    assert await store.read_parting("elsewhere", 10) is None
    parting = await store.read_parting("default", 1)
    assert parting is not None
    assert (parting.workflow_id, parting.run_id, parting.status) == ("parent", parent.run_id, "completed")
    assert [(each.row.workflow_id, each.policy) for each in parting.children] == [("child-1", "terminate")]
    # Retention leaves it alone until that is done.
    store_now = await store.now_ms()
    assert store_now == NOW
    assert await store.forget_chains([parent.chain_key], -1) == 0
    await store.settle_parting(parting.run_key, [parting.children[0].row.chain_key])
    again = await store.read_parting("default", 10)
    assert again is not None
    assert [each.row.workflow_id for each in again.children] == ["child-3"]
    await store.settle_parting(parting.run_key, [again.children[0].row.chain_key])
    assert await store.read_parting("default", 10) is None
    assert (await store.look(*place)).partings is False
    assert await store.forget_chains([parent.chain_key], -1) == 1
    assert await store.read_parent(rows["child-2"].chain_key) is None


async def test_who_has_no_such_children_leaves_no_parting(store: Store) -> None:
    session, parent, row = await with_child(store, "abandon")
    assert await write(store, closing(parent)) is Reply.WON
    assert await write(store, terminate(row)) is Reply.WON
    assert await store.read_parting("default", 10) is None
    assert session


async def test_notices_hold_up_no_retention(store: Store) -> None:
    session, parent, row = await with_child(store)
    assert await write(store, closing(row)) is Reply.WON
    assert await write(store, closing(await store.read_run(parent.run_key))) is Reply.WON
    found = await store.finished_chains("default", "fulfil", -1, (0, 0), 10)
    assert [each.undelivered for each in found] == [False, False]
    assert session
