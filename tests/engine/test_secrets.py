"""Secrets reach the code that declares them, and nothing that is kept or told: a canary is looked for everywhere."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pledger import (
    CircuitBreaker,
    CommandSecrets,
    EnvironmentSecrets,
    FileSecrets,
    RetryBudget,
    RetryPolicy,
    Secret,
    activity,
    errors,
    workflow,
)
from pledger.cli import main
from pledger.engine.secrets import Secrets
from pledger.history.secret import known, redact
from pledger.store.memory import MemoryStore
from pledger.store.postgres import PostgresStore
from tests.engine.harness import Ledger, until
from tests.engine.shop import Shop

#: In every canary: whatever writes one leaves this, but for base64.
MARK = "7f3a9b2c41"
CANARY = f"canary-{MARK}"
NASTY = f'can"ary\\ \n é {MARK} {"x" * 20}'
ONCE = RetryPolicy(maximum_attempts=2, initial_interval=timedelta(milliseconds=1))


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PLEDGER_SECRET_STRIPE_KEY", CANARY)
    monkeypatch.setenv("PLEDGER_SECRET_NASTY", NASTY)
    monkeypatch.setattr(known, "forms", ())
    factory = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(factory)


@activity.defn(secrets=["stripe-key", "nasty"], retry_policy=ONCE)
async def tell_all(key: Secret) -> str:
    value, nasty = key.value, activity.secret("secret://nasty")
    assert (value, nasty) == (CANARY, NASTY)
    activity.heartbeat({"key": value, "nasty": nasty})
    activity.logger.warning("paying with %s", value, extra={"key": nasty})
    try:
        raise ValueError(f"inner {nasty!r} {base64.b64encode(value.encode()).decode()}")
    except ValueError as error:
        logging.getLogger("their.package").exception("it failed with %(key)s", {"key": value})
        raise errors.ApplicationError(f"refused {value}: {nasty}", value, {"deep": [nasty]}, type=value) from error


@activity.defn(secrets=["stripe-key"], retry_policy=ONCE)
def tell_all_in_a_thread(key: Secret) -> str:
    activity.heartbeat(key.value)
    raise RuntimeError(
        json.dumps({"url": f"https://x/?key={key.value}", "pad": "y" * 20_000 + key.value + "z" * 20_000})
    )


@activity.defn(secrets=["stripe-key", "nasty"], executor="process", retry_policy=ONCE)
def tell_all_in_a_process(key: Secret) -> str:
    activity.heartbeat(activity.secret("nasty"))
    assert key.value == CANARY
    raise RuntimeError(f"refused {key.value} {activity.secret('nasty')}")


@activity.defn(secrets=["stripe-key"])
async def give_it_back(key: Secret) -> dict[str, str]:
    return {"key": key.value}


@activity.defn(secrets=["stripe-key"], executor="process")
def give_it_back_from_a_process(key: Secret) -> str:
    return key.value


@activity.defn(secrets=["stripe-key"])
async def pay(key: Secret, amount: int) -> Secret:
    assert key.value == CANARY
    return key


@activity.defn
async def undeclared(key: Secret) -> str:
    return key.value


@activity.defn(secrets=["nowhere"], retry_policy=ONCE)
async def wants_what_is_nowhere() -> None: ...


ACTIVITIES: dict[str, Any] = {
    each.name: each
    for each in (
        tell_all,
        tell_all_in_a_thread,
        tell_all_in_a_process,
        give_it_back,
        give_it_back_from_a_process,
        undeclared,
    )
}


@workflow.defn
async def reckless(name: str, key: Secret) -> str:
    return str(await ACTIVITIES[name](key))


@workflow.defn
async def careful(key: Secret, anything: Any) -> Secret:
    assert repr(key) == "Secret('stripe-key')"
    return await pay(anything[0], 5)


@workflow.defn
async def in_vain() -> None:
    await wants_what_is_nowhere()


async def everything(ledger: Ledger) -> str:
    """All that the ledger holds, as text."""
    async with ledger.connect() as client:
        store = client.internals.store._inner
        if isinstance(store, MemoryStore):
            return repr(store.state)
        if isinstance(store, PostgresStore):
            text = []
            async with store._lists.use() as connection:
                tables = await connection.execute(
                    "SELECT tablename FROM pg_tables WHERE schemaname = $1", [store.address.schema]
                )
                for (table,) in await tables.fetchall():
                    rows = await connection.execute(f"SELECT * FROM {store.address.quoted}.{table}", prepare=False)
                    text += [repr(row) for row in await rows.fetchall()]
            return "\n".join(text)
        path = Path(ledger.path)
        return "".join(each.read_bytes().decode("latin-1") for each in path.parent.glob(f"{path.name}*"))


def holds_none(text: str) -> None:
    for form in (MARK, base64.b64encode(CANARY.encode()).decode(), base64.b64encode(NASTY.encode()).decode()):
        at = text.find(form)
        assert at < 0, text[max(0, at - 200) : at + 50]


@pytest.mark.parametrize("name", ACTIVITIES)
async def test_a_canary_is_found_nowhere(
    ledger: Ledger, name: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    ledger.replay_at_end = False
    where = [EnvironmentSecrets()]
    async with ledger.connect() as client, ledger.worker(client, reckless, *ACTIVITIES.values(), secrets=where):
        handle = await client.start_workflow(reckless, name, Secret("stripe-key"), id="order-1")
        with pytest.raises(errors.WorkflowFailedError) as caught:
            await handle.result()
        failure = caught.value.__cause__
        assert failure is not None
        assert isinstance(failure.__cause__, errors.ApplicationError)
        told = failure.__cause__
        described = await handle.describe()
    if name.startswith("give"):
        assert (told.type, told.non_retryable) == ("SecretError", True)
        assert f"the result of activity {name!r}" in str(told)
        assert "secret://stripe-key, and is not recorded" in str(told)
    elif name == "undeclared":
        assert "@activity.defn(secrets=['stripe-key'])" in str(told)
        assert len(described.attempts) == 1
    else:
        assert "secret://stripe-key" in f"{told} {told.details}"
        assert len(described.attempts) == 2
    holds_none(await everything(ledger))
    holds_none(repr(described))
    holds_none(repr(caught.value.__dict__) + repr(told.details) + told.remote_traceback)
    lines = [logging.Formatter().format(record) + repr(record.__dict__) for record in caplog.records]
    holds_none("\n".join(lines))
    if ledger.url.startswith("sqlite"):
        for command in (["show", "order-1"], ["history", "order-1"], ["show", "order-1", "--json"], ["list"]):
            assert await asyncio.to_thread(main, [*command, "--url", ledger.url]) == 0
        shown = capsys.readouterr()
        assert "secret://stripe-key" in shown.out
        holds_none(shown.out + shown.err)


@activity.defn(
    secrets=["stripe-key", "nasty"],
    retry_policy=RetryPolicy(maximum_attempts=1),
    retry_budget=RetryBudget("card-api", breaker=CircuitBreaker(failure_ratio=0.01, minimum_calls=1)),
)
async def tell_who_depends_on_it(key: Secret) -> str:
    raise RuntimeError(f"{key.value} was refused by {activity.secret('nasty')}")


@workflow.defn
async def depending(key: Secret) -> str:
    return await tell_who_depends_on_it(key)


async def test_a_canary_is_not_in_what_is_known_of_a_dependency(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """Its circuit opens with the failure for its reason, which workers and people read."""
    caplog.set_level(logging.DEBUG)
    where = [EnvironmentSecrets()]
    async with (
        ledger.connect() as client,
        ledger.worker(client, depending, tell_who_depends_on_it, secrets=where),
    ):
        handle = await client.start_workflow(depending, Secret("stripe-key"), id="order-1")
        with pytest.raises(errors.WorkflowFailedError):
            await handle.result()

        async def is_open() -> bool:
            [found] = await client.dependencies()
            return found.phase == "open"

        await until(is_open)
        [found] = await client.dependencies()
        assert "secret://stripe-key" in found.last_failure
        holds_none(repr(found))
        holds_none(await everything(ledger))
    holds_none("\n".join(logging.Formatter().format(record) for record in caplog.records))


@activity.defn(secrets=["stripe-key", "nasty"], transaction="shop", retry_policy=ONCE)
async def fail_in_a_transaction(key: Secret) -> str:
    await activity.connection().execute("SELECT 1")
    raise RuntimeError(f"refused {key.value}: {activity.secret('nasty')}")


@activity.defn(secrets=["stripe-key"], transaction="shop")
def give_it_back_from_a_transaction(key: Secret) -> list[str]:
    activity.connection().execute("SELECT 1")
    return [key.value]


@workflow.defn
async def transacting(key: Secret, is_given_back: bool) -> str:
    return str(await (give_it_back_from_a_transaction(key) if is_given_back else fail_in_a_transaction(key)))


@pytest.mark.parametrize("is_given_back", [True, False])
async def test_a_canary_is_found_nowhere_after_a_transaction(
    shop: Shop, is_given_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ledger, options = shop.ledger, {"transactions": {"shop": None}, "secrets": [EnvironmentSecrets()]}
    definitions = (transacting, fail_in_a_transaction, give_it_back_from_a_transaction)
    async with ledger.connect() as client, ledger.worker(client, *definitions, **options):
        handle = await client.start_workflow(transacting, Secret("stripe-key"), is_given_back, id="order-1")
        with pytest.raises(errors.WorkflowFailedError) as caught:
            await handle.result()
        assert caught.value.__cause__ is not None
        told = caught.value.__cause__.__cause__
        assert isinstance(told, errors.ApplicationError)
        assert "secret://stripe-key" in str(told)
        holds_none(repr(await handle.describe()))
    holds_none(await everything(ledger))
    holds_none(f"{told} {told.details} {told.remote_traceback}")
    holds_none("\n".join(logging.Formatter().format(record) for record in caplog.records))


async def test_references_go_through_histories_and_values_to_who_declares_them(ledger: Ledger) -> None:
    async with ledger.connect() as client, ledger.worker(client, careful, pay, secrets=[EnvironmentSecrets()]):
        key = Secret("secret://stripe-key")
        handle = await client.start_workflow(careful, key, [key], id="order-1")
        assert await handle.result() == key
        again = await client.start_workflow(careful, key, [key], id="order-1")
        assert again.run_id == handle.run_id
        assert b"secret://stripe-key" in (await handle.history()).export()
    holds_none(await everything(ledger))


async def test_a_secret_that_is_nowhere_is_tried_again_and_told(ledger: Ledger) -> None:
    where = [EnvironmentSecrets(), FileSecrets("/nowhere")]
    async with ledger.connect() as client, ledger.worker(client, in_vain, wants_what_is_nowhere, secrets=where):
        handle = await client.start_workflow(in_vain, id="order-1")
        with pytest.raises(errors.WorkflowFailedError):
            await handle.result()
        described = await handle.describe()
    assert len(described.attempts) == 2
    failure = described.state.failure
    assert failure is not None
    assert "the secret 'nowhere' of activity 'wants_what_is_nowhere' is nowhere" in str(failure)
    assert "asked: EnvironmentSecrets('PLEDGER_SECRET_'), FileSecrets('/nowhere')" in str(failure)


async def test_a_worker_without_resolvers_is_told_at_once(ledger: Ledger) -> None:
    async with ledger.connect() as client:
        with pytest.raises(
            errors.UsageError, match=r"activity 'pay' declares secrets \(stripe-key\), and the worker has"
        ):
            ledger.worker(client, pay)


async def test_files_and_commands(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLEDGER_SECRET_STRIPE_KEY")
    (tmp_path / "other").write_text("not asked for")
    command = CommandSecrets([sys.executable, "-c", f"import sys; print('{CANARY}' if sys.argv[1] else '')"])
    for resolver in (command, FileSecrets(tmp_path)):
        (tmp_path / "stripe-key").write_text(CANARY + "\n")
        where = [EnvironmentSecrets(), resolver]
        async with ledger.connect() as client, ledger.worker(client, careful, pay, secrets=where):
            key = Secret("stripe-key")
            assert await client.execute_workflow(careful, key, [key], id=repr(type(resolver))) == key
    holds_none(await everything(ledger))


# Parts ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "../etc/passwd", "a/b", ".hidden", "a b", "é", "x" * 201, "secret://secret://x"])
def test_a_name_that_can_be_none(name: str) -> None:
    with pytest.raises(errors.SecretError, match="is no name of a secret") as caught:
        Secret(name)
    assert len(name) < 5 or name not in str(caught.value)


def test_a_secret_shows_its_name_only() -> None:
    key = Secret("stripe-key")
    assert (str(key), repr(key), f"{key}") == ("secret://stripe-key", "Secret('stripe-key')", "secret://stripe-key")
    assert key == Secret("secret://stripe-key")
    assert len({key, Secret("stripe-key"), Secret("other")}) == 2
    with pytest.raises(AttributeError):
        key.name = "other"
    with pytest.raises(errors.SecretError, match=r"only inside an attempt .*secrets=\['stripe-key'\]"):
        _ = key.value


def test_where_secrets_cannot_be_had(tmp_path: Path) -> None:
    assert FileSecrets(tmp_path).resolve("nothing") is None
    (tmp_path / "folder").mkdir()
    with pytest.raises(errors.SecretError, match="cannot read the secret 'folder': IsADirectoryError"):
        FileSecrets(tmp_path).resolve("folder")
    (tmp_path / "binary").write_bytes(b"\xff" + CANARY.encode())
    with pytest.raises(errors.SecretError, match="UnicodeDecodeError") as caught:
        FileSecrets(tmp_path).resolve("binary")
    holds_none(str(caught.value))
    with pytest.raises(errors.SecretError, match="did not give the secret 'x': it ended with 3"):
        CommandSecrets([sys.executable, "-c", "raise SystemExit(3)"]).resolve("x")
    with pytest.raises(errors.SecretError, match="FileNotFoundError"):
        CommandSecrets(["no-such-command"]).resolve("x")
    assert EnvironmentSecrets("").resolve("pledger.secret-stripe_key") == os.environ["PLEDGER_SECRET_STRIPE_KEY"]


def test_what_is_too_short_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLEDGER_SECRET_PIN", "1234")
    with pytest.raises(errors.SecretError, match="has 4 characters in EnvironmentSecrets"):
        Secrets([EnvironmentSecrets()]).resolve(["pin"], "pay")
    assert redact("1234") == "1234"
