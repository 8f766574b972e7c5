from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from pledger import errors
from pledger.cli import documents
from pledger.cli.timeline import timeline
from pledger.cli.waits import waits
from pledger.history import events
from tests.unit.cli.runs import START, TIMEOUT, Run, schedule, timer


def parsed(document: Any) -> Any:
    return json.loads(documents.to_json(document), parse_float=Decimal)


def test_payloads_keep_every_digit() -> None:
    payload = b'{"id":3544790567247868102,"dec":0.2345678901234568,"price":12.10,"big":' + b"9" * 400 + b"}"
    text = documents.to_json({"result": documents.raw(payload)})
    assert '"price": 12.10' in text
    assert "9" * 400 in text
    assert parsed({"result": documents.raw(payload)})["result"]["dec"] == Decimal("0.2345678901234568")


def test_nothing_is_null() -> None:
    assert documents.raw(None) is None
    assert parsed({"result": None}) == {"result": None}


def test_a_run_in_full() -> None:
    run = Run().then(0, START, schedule(), timer(60)).task(2, attempt=2, due_s=12).attempt(2, 1)
    described = run.describe(9)
    entries = timeline(run.transitions, run.attempts, run.pending)
    document = parsed(documents.run_in_full(described, entries, waits(described)))
    assert document["run"]["workflow_id"] == "order-7421"
    assert document["run"]["started"] == "2026-11-29T18:40:00.000+00:00"
    assert document["input"] == [{"id": 3544790567247868102}]
    assert (document["result"], document["failure"]) == (None, None)
    start, charge, sleep = document["timeline"]
    assert start == {
        "event_id": 1,
        "time": "2026-11-29T18:40:00.000+00:00",
        "kind": "start",
        "name": "fulfil",
        "input": [{"id": 3544790567247868102}],
    }
    assert (charge["outcome"], charge["attempt"], charge["due"]) == ("pending", 2, "2026-11-29T18:40:12.000+00:00")
    assert charge["attempts"][0]["failure"]["type"] == "CardTimeout"
    assert sleep["due"] == "2026-11-29T18:41:00.000+00:00"
    assert [each["kind"] for each in document["waits"]] == ["activity", "timer", "worker"]


def test_a_failure_has_its_causes_inside() -> None:
    run = Run().then(0, START).then(1, events.FailRun(TIMEOUT))
    described = run.describe(9)
    document = parsed(documents.run_in_full(described, timeline(run.transitions), []))
    assert document["failure"]["message"] == "gateway did not answer"
    assert document["timeline"][-1]["outcome"] == "failed"


def test_an_error_says_what_it_is_and_how_the_command_ends() -> None:
    cause = errors.ApplicationError("no money", {"balance": 3}, type="CardDeclined")
    error = errors.WorkflowFailedError("it failed", workflow_id="order-7421", run_id="01J9X", status="failed")
    error.__cause__ = cause
    document = parsed(documents.error(error))["error"]
    assert document["cause"]["type"] == "CardDeclined"
    assert document["cause"]["details"] == [{"balance": 3}]
    del document["cause"]
    assert document == {
        "type": "WorkflowFailedError",
        "message": "it failed",
        "workflow_id": "order-7421",
        "run_id": "01J9X",
        "status": "failed",
        "exit_code": 1,
    }


def test_any_problem_of_user_code_can_be_told() -> None:
    assert parsed(documents.problem(ZeroDivisionError("division"))) == {
        "type": "ZeroDivisionError",
        "message": "division",
    }
