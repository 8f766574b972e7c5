"""The command line as a user meets it: real processes on a real ledger, from an empty folder on."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.acceptance.cli import PATIENCE_S, SHOP, Project

#: Case STO-05: digits that a double does not hold, and some that it just does.
ORDER = '{"id": 3544790567247868102, "small": 9007199254740991, "dec": 0.2345678901234568}'
DIGITS = ("3544790567247868102", "9007199254740991", "0.2345678901234568")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def at_work(project: Project) -> Iterator[Project]:
    """With a worker."""
    with project.worker():
        yield project


def until(holds: Callable[[], bool]) -> None:
    """Other processes are at work: look again until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.05)


# Starting -------------------------------------------------------------------------------------------------------------


def test_STO_05_a_run_from_start_to_result_keeps_every_digit(at_work: Project) -> None:
    started = at_work.pledger("start", "fulfil", ORDER, "--id", "order-7421", "--wait")
    assert json.loads(started.out) == json.loads(ORDER)
    shown = at_work.pledger("show", "order-7421")
    exported = at_work.pledger("history", "order-7421", "--json")
    for digits in DIGITS:
        assert digits in started.out
        assert digits in shown.out
        assert exported.out.count(digits) == 4  # start, schedule, outcome, end

    # An operator copies the input out of the history and starts another run with it.
    [order] = exported.json["transitions"][0]["inputs"][0]["args"]
    copied = json.dumps(order, default=float)
    again = at_work.pledger("start", "fulfil", copied, "--id", "order-7422", "--wait", "--json").json
    assert again["result"] == {"id": 3544790567247868102, "small": 9007199254740991, "dec": Decimal(DIGITS[2])}
    assert again["is_new"] is True


def test_decimals_survive_to_their_last_digit_and_are_never_rounded_on_the_way(at_work: Project) -> None:
    amount = "0.12345678901234567890"
    refused = at_work.pledger("start", "fulfil", f'{{"amount": {amount}}}', "--id", "order-1", code=2)
    assert "would be rounded to 0.12345678901234568" in refused.err
    at_work.pledger("start", "Approval", "--id", "approval-1")
    at_work.pledger("signal", "approval-1", "approve", f'"{amount}"')
    waited = at_work.pledger("start", "Approval", "--id", "approval-1", "--wait", "--json").json
    assert waited["result"] == amount
    assert waited["is_new"] is False


def test_starting_twice_gives_the_same_run_and_another_input_is_refused(project: Project) -> None:
    first = project.pledger("start", "fulfil", "{}", "--id", "order-1", "--json").json
    second = project.pledger("start", "fulfil", "{ }", "--id", "order-1", "--json").json
    assert (first["is_new"], second["is_new"]) == (True, False)
    assert first["run_id"] == second["run_id"]
    refused = project.pledger("start", "fulfil", '{"id": 2}', "--id", "order-1", code=7)
    assert "is taken by run" in refused.err
    replaced = ("--id-conflict-policy", "terminate_existing")
    third = project.pledger("start", "fulfil", '{"id": 2}', "--id", "order-1", *replaced, "--json").json
    assert third["run_id"] != first["run_id"]


def test_the_first_start_makes_the_ledger_and_says_what_is_missing(project: Project) -> None:
    started = project.pledger("start", "fulfil", "{}", "--id", "order-1")
    assert started.out.startswith("started order-1 (fulfil, run ")
    assert "made a new ledger" in started.err
    assert "no live worker serves task queue 'default'; start one: pledger worker" in started.err
    assert project.ledger.stat().st_mode & 0o777 == 0o600


def test_arguments_come_from_files_and_stdin_too(at_work: Project) -> None:
    at_work.write("order.json", ORDER)
    at_work.pledger("start", "fulfil", "@order.json", "--id", "order-1", "--wait")
    at_work.pledger("start", "fulfil", "-", "--id", "order-2", "--wait", stdin=ORDER)
    assert at_work.pledger("list", "--json").json["total"] == 2
    negative = at_work.pledger("start", "buggy", "-5", "--id", "bug-1", "--json").json
    assert negative["workflow_id"] == "bug-1"


def test_a_failed_run_is_bad_news_with_its_cause(at_work: Project) -> None:
    failed = at_work.pledger("start", "refuse", "7", "--id", "order-1", "--wait", code=1)
    assert failed.out == ""
    assert failed.err.count("CardDeclined: no money") == 1
    assert "Traceback" not in failed.err
    error = at_work.pledger("start", "refuse", "7", "--id", "order-1", "--wait", "--json", code=1).error
    assert (error["type"], error["workflow_id"], error["status"]) == ("WorkflowFailedError", "order-1", "failed")
    assert error["cause"]["cause"]["details"] == [{"balance": 3}]


def test_a_blocked_run_does_not_keep_its_caller_waiting(at_work: Project) -> None:
    blocked = at_work.pledger("start", "buggy", "5", "--id", "bug-1", "--wait", code=6)
    assert "is blocked by ZeroDivisionError" in blocked.err
    assert 'shop.py", line' in blocked.err
    assert "pledger/engine" not in blocked.err
    error = at_work.pledger("start", "buggy", "5", "--id", "bug-1", "--wait", "--json", code=6).error
    assert (error["type"], error["failure_type"]) == ("RunBlockedError", "ZeroDivisionError")


def test_waiting_has_an_end_and_the_run_goes_on(project: Project) -> None:
    late = project.pledger("start", "fulfil", "{}", "--id", "order-1", "--wait", "--timeout", "200ms", code=4)
    assert "has not closed within 0.2 s and goes on" in late.err
    with project.worker():
        project.pledger("start", "fulfil", "{}", "--id", "order-1", "--wait")


# Messages and endings -------------------------------------------------------------------------------------------------


def test_queries_and_signals(at_work: Project) -> None:
    at_work.pledger("start", "Approval", "--id", "approval-1")
    assert at_work.pledger("query", "approval-1", "amount").out == "null\n"
    broken = at_work.pledger("query", "approval-1", "broken", code=1)
    assert "raised ValueError: no answer" in broken.err
    assert "it has: amount, broken" in at_work.pledger("query", "approval-1", "nosuch", code=2).err
    accepted = at_work.pledger("signal", "approval-1", "approve", '"12.50"', "--message-id", "m1", "--json").json
    assert accepted == {"workflow_id": "approval-1", "signal": "approve", "accepted": True}
    at_work.pledger("start", "Approval", "--id", "approval-1", "--wait")
    assert at_work.pledger("follow", "approval-1", "--topic", "steps").out == '0  asked\n1  ["approved","12.50"]\n'
    followed = at_work.pledger("follow", "approval-1", "--topic", "steps", "--from", "1", "--json").json
    assert (followed["offset"], followed["value"], followed["attempt"]) == (1, ["approved", "12.50"], 0)
    assert at_work.pledger("follow", "approval-1", "--topic", "nothing").out == ""
    assert "steps to offset 1" in at_work.pledger("show", "approval-1").out
    assert "is completed and takes no signal" in at_work.pledger("signal", "approval-1", "approve", '"1"', code=7).err
    assert "is completed; a query asks an open run" in at_work.pledger("query", "approval-1", "amount", code=7).err


def test_a_query_without_a_worker_says_which_one_to_start(project: Project) -> None:
    project.pledger("start", "Approval", "--id", "approval-1", "--task-queue", "eu")
    unanswered = project.pledger("query", "approval-1", "amount", "--timeout", "100ms", code=4)
    assert "Start one for task queue 'eu' that knows 'Approval'" in unanswered.err


def test_a_cancel_request_ends_in_its_verdict(at_work: Project) -> None:
    at_work.pledger("start", "slow_to_stop", "--id", "slow-1")
    until(lambda: "sleeps until" in at_work.pledger("show", "slow-1").out)
    cancelled = at_work.pledger("cancel", "slow-1", "--reason", "changed my mind", "--wait")
    assert cancelled.out == "slow-1 is cancelled\n"
    assert "cancel requested: changed my mind" in at_work.pledger("show", "slow-1").out
    assert "takes no request to cancel" in at_work.pledger("cancel", "slow-1", code=7).err


def test_a_cancel_request_that_the_code_does_not_heed_is_bad_news(at_work: Project) -> None:
    at_work.pledger("start", "stubborn", "--id", "stubborn-1")
    until(lambda: "sleeps until" in at_work.pledger("show", "stubborn-1").out)
    unheeded = at_work.pledger("cancel", "stubborn-1", "--wait", code=1)
    assert unheeded.out == "stubborn-1 is completed; the request did not cancel it\n"


def test_a_cancel_request_that_comes_too_late_is_undelivered(project: Project) -> None:
    # Both wait in the inbox before the first worker comes, and the signal was there first.
    project.pledger("start", "Approval", "--id", "approval-1")
    project.pledger("signal", "approval-1", "approve", '"1"')
    asked = project.pledger("cancel", "approval-1")
    assert "--wait tells what becomes of it" in asked.out
    with project.worker():
        project.pledger("start", "Approval", "--id", "approval-1", "--wait")
    shown = project.pledger("show", "approval-1").out
    assert "Completed after" in shown
    assert "Undelivered: request to cancel" in shown


def test_terminate_ends_a_run_at_once(project: Project) -> None:
    project.pledger("start", "slow_to_stop", "--id", "slow-1")
    assert project.pledger("terminate", "slow-1", "--reason", "enough").out == "slow-1 is terminated\n"
    assert "Terminated after" in project.pledger("show", "slow-1").out
    assert project.pledger("terminate", "slow-1", "--json", code=7).error["status"] == "terminated"


# Pausing --------------------------------------------------------------------------------------------------------------


def test_a_paused_run_says_who_why_and_what_to_do(at_work: Project) -> None:
    at_work.pledger("start", "Approval", "--id", "approval-1")
    paused = at_work.pledger("pause", "run", "approval-1", "--reason", "wait for the call")
    assert paused.out == "run approval-1 is paused; to go on: pledger resume run approval-1\n"
    at_work.pledger("signal", "approval-1", "approve", '"7"')
    [first, *_] = [line for line in at_work.pledger("show", "approval-1").out.splitlines() if line.startswith("It ")]
    assert first.startswith("It is paused by ")
    assert first.endswith("(wait for the call). To go on: pledger resume run approval-1")
    [row] = at_work.pledger("list").out.splitlines()[1:]
    assert " paused " in row
    assert row.endswith(": wait for the call")
    assert "run approval-1 by " in at_work.pledger("doctor").out
    [pause] = at_work.pledger("paused", "--json").json["pauses"]
    assert (pause["kind"], pause["name"], pause["reason"]) == ("run", "approval-1", "wait for the call")
    assert at_work.pledger("resume", "run", "approval-1").out == "run approval-1 goes on\n"
    until(lambda: at_work.pledger("show", "approval-1", "--json").json["run"]["status"] == "completed")
    assert at_work.pledger("paused").err == "nothing is paused\n"
    assert at_work.pledger("resume", "run", "approval-1").err.startswith("run approval-1 is not paused")


def test_after_an_incident_workers_start_paused_and_runs_go_on_little_by_little(project: Project) -> None:
    with project.worker("--paused"):
        project.pledger("start", "fulfil", "{}", "--id", "order-1")
        assert "is paused by" in project.pledger("show", "order-1").out
        assert project.pledger("paused").out.splitlines()[1].startswith("namespace  default")
        lifted = project.pledger("resume", "namespace", "--rate", "10")
        assert lifted.out == "namespace default goes on, 10 a second; `pledger paused` shows how far it is\n"
        until(lambda: project.pledger("show", "order-1", "--json").json["run"]["status"] == "completed")


def test_a_paused_dependency_says_who_why_and_what_to_do(project: Project) -> None:
    with project.worker():
        project.pledger("start", "ship", "1", "--id", "ship-1", "--wait")
    [found] = project.pledger("dependency", "list", "--json").json["dependencies"]
    assert (found["name"], found["phase"], found["calls"], found["succeeded"]) == ("courier-api", "closed", 1, 1)
    paused = project.pledger("dependency", "pause", "courier-api", "--reason", "they move")
    assert paused.out == "dependency courier-api is paused; to go on: pledger dependency resume courier-api\n"
    with project.worker():
        project.pledger("start", "ship", "2", "--id", "ship-2")
        until(lambda: "dependency courier-api is paused by " in project.pledger("show", "ship-2").out)
        assert "(they move). To go on: pledger dependency resume courier-api" in project.pledger("show", "ship-2").out
        [_, row] = project.pledger("dependency", "list").out.splitlines()
        assert row.startswith("courier-api  paused ")
        assert row.endswith(": they move")
        resumed = project.pledger("dependency", "resume", "courier-api", "--reason", "they are back")
        assert resumed.out == "dependency courier-api is tried with 1 at a time, then with more\n"
        until(lambda: project.pledger("show", "ship-2", "--json").json["run"]["status"] == "completed")
    shown = project.pledger("dependency", "show", "courier-api").out
    assert "they move" in shown
    assert "they are back" in shown
    assert "book_courier" in shown
    assert [each["phase"] for each in project.pledger("dependency", "show", "courier-api", "--json").json["changes"]][
        :2
    ] == ["paused", "half_open"]
    resumed = project.pledger("dependency", "resume", "courier-api", "--at-once")
    assert resumed.out == "dependency courier-api goes on\n"


def test_a_dependency_that_is_not_there(project: Project) -> None:
    project.pledger("start", "ship", "1", "--id", "ship-1")
    assert project.pledger("dependency", "list").err == "no worker has stated a retry budget yet\n"
    for command in ("show", "pause", "resume"):
        assert "'bnak'" in project.pledger("dependency", command, "bnak", code=2).err


def test_what_cannot_be_paused(project: Project) -> None:
    project.pledger("start", "fulfil", "{}", "--id", "order-1")
    assert "name the run that is meant" in project.pledger("pause", "run", code=2).err
    assert "a queue to be paused has a name" in project.pledger("pause", "queue", code=2).err
    assert "--rate is for what has many runs" in project.pledger("resume", "run", "order-1", "--rate", "1", code=2).err
    assert "must be at least 0.001 a second" in project.pledger("resume", "namespace", "--rate", "0", code=2).err
    assert "no workflow 'order-2'" in project.pledger("pause", "run", "order-2", code=3).err


# Looking --------------------------------------------------------------------------------------------------------------


def test_list_filters_limits_and_says_what_it_left_out(project: Project) -> None:
    for number in range(3):
        project.pledger("start", "fulfil", "{}", "--id", f"order-{number}")
    project.pledger("terminate", "order-0")
    running = project.pledger("list", "status = 'running'", "--json").json
    assert [each["workflow_id"] for each in running["runs"]] == ["order-2", "order-1"]
    limited = project.pledger("list", "--limit", "1")
    assert "order-2" in limited.out
    assert "order-1" not in limited.out
    assert "1 of 3 runs" in limited.err
    assert project.pledger("list", "--limit", "1", "--json").json["total"] == 3
    nothing = project.pledger("list", "type = 'nosuch'")
    assert (nothing.out, nothing.err) == ("", "no runs meet the filter\n")
    assert "there is no status 'runing'" in project.pledger("list", "status = 'runing'", code=2).err


def test_show_tells_attempts_and_what_a_run_waits_for(at_work: Project) -> None:
    at_work.pledger("start", "refund", "7", "--id", "refund-1")
    until(lambda: "attempt 2 at" in at_work.pledger("show", "refund-1").out)
    lines = at_work.pledger("show", "refund-1").out.splitlines()
    [attempt] = [line for line in lines if line.split()[1:3] == ["attempt", "1"]]
    assert "failed: CardTimeout: gateway did not answer" in attempt
    assert lines[-1].startswith("It waits for activity refund_card (attempt 2 at ")
    assert lines[-1].endswith(", after CardTimeout: gateway did not answer)")
    [wait] = at_work.pledger("show", "refund-1", "--json").json["waits"]
    assert (wait["kind"], wait["event_id"], wait["needs_help"]) == ("activity", 2, False)


def test_show_tells_that_nobody_is_there(project: Project) -> None:
    project.pledger("start", "fulfil", "{}", "--id", "order-1", "--task-queue", "eu")
    start, carrier = project.pledger("show", "order-1").out.splitlines()[-2:]
    assert start == "It waits for a worker of task queue 'eu' to start it"
    assert carrier.startswith("It goes on only once there is a worker: no live worker serves task queue 'eu'.")
    assert carrier.endswith("Start one: pledger worker your_module --task-queue eu")


def test_a_run_is_found_by_its_run_id_too(project: Project) -> None:
    run_id = project.pledger("start", "fulfil", "{}", "--id", "order-1", "--json").json["run_id"]
    assert project.pledger("show", run_id, "--json").json["run"]["workflow_id"] == "order-1"
    assert project.pledger("show", "order-1", "--run-id", run_id, "--json").json["run"]["run_id"] == run_id


# Replaying ------------------------------------------------------------------------------------------------------------

ANOTHER_STEP = ("    # first step\n", '    await asyncio.sleep(order["id"] * 0 + 3600)\n')


def test_replay_shows_the_first_difference_before_it_is_deployed(project: Project) -> None:
    with project.worker():
        for number in range(2):
            project.pledger("start", "fulfil", f'{{"id": {number}}}', "--id", f"order-{number}", "--wait")
        project.pledger("start", "Approval", "--id", "approval-1")
        until(lambda: "waits for a message" in project.pledger("show", "approval-1").out)
    exported = project.write("order-1.json", project.pledger("history", "order-1", "--json").out)
    project.write("later.py", SHOP.replace(*ANOTHER_STEP))

    same = project.pledger("replay", "order-1", "--app", "shop")
    assert same.out.endswith("events replay as recorded\n")
    for what in ("order-1", exported.name):
        lines = project.pledger("replay", what, "--app", "later", code=1).out.splitlines()
        assert lines[0].startswith("NondeterminismError: workflow 'order-1' (fulfil, run ")
        assert lines[0].endswith(" is blocked at event 2")
        assert lines[1] == "  recorded  ScheduleActivity 'charge_card'"
        assert lines[2].startswith("  replayed  StartTimer of 3600 s   later.py:")
        assert lines[2].endswith(", in fulfil")
        assert "workflow.patched(" in " ".join(lines[3:])

    every = project.pledger("replay", "--all", "--app", "later", code=1)
    assert every.out.startswith("3 runs: 1 replay as recorded, 2 differ\n")
    document = project.pledger(
        "replay", "--all", "--filter", "type = 'fulfil'", "--app", "later", "--json", code=1
    ).json
    assert document["counts"] == {"same": 0, "differs": 2, "unknown_type": 0, "damaged": 0}
    assert document["runs"][0]["problem"]["recorded"] == "ScheduleActivity 'charge_card'"

    # The code may also come from the environment, as the message of a blocked run assumes.
    project.pledger("replay", "order-1", PLEDGER_APP="shop")
    assert "--app your_module" in project.pledger("replay", "order-1", code=2).err
    assert (
        "does not have the workflow fulfil"
        in project.pledger("replay", "order-1", "--app", "shop:Approval", code=2).err
    )


def test_code_that_does_not_fit_blocks_a_run_and_fitting_code_takes_it_up(project: Project) -> None:
    with project.worker():
        project.pledger("start", "Approval", "--id", "approval-1")
        until(lambda: "waits for a message" in project.pledger("show", "approval-1").out)
    wait = "        await workflow.wait_condition("
    project.write("later.py", SHOP.replace(wait, f"        await asyncio.sleep(60)\n{wait}"))
    with project.worker(target="later"):
        project.pledger("signal", "approval-1", "approve", '"1"')
        until(lambda: "is blocked by" in project.pledger("show", "approval-1").out)
        lines = project.pledger("show", "approval-1").out.splitlines()
        begin = next(n for n, line in enumerate(lines) if line.startswith("It is blocked by NondeterminismError since"))
        assert lines[begin + 1 : begin + 3] == ["  recorded  nothing more", lines[begin + 2]]
        assert lines[begin + 2].startswith("  replayed  StartTimer of 60 s   later.py:")
        assert "NondeterminismError" in project.pledger("list", "blocked = true").out
        assert "1 open, 1 of them blocked" in project.pledger("doctor").out
    with project.worker():
        assert project.pledger("start", "Approval", "--id", "approval-1", "--wait").out == '"1"\n'


# Working --------------------------------------------------------------------------------------------------------------


def test_several_workers_share_a_ledger_and_stop_gracefully(project: Project) -> None:
    with project.worker("--identity", "one") as one, project.worker("--identity", "two") as two:
        for number in range(3):
            project.pledger("start", "fulfil", f'{{"id": {number}, "sleep": 0.2}}', "--id", f"order-{number}")
        assert "2 live" in project.pledger("doctor").out
        assert one.stop(signal.SIGTERM) == 0
        for number in range(3):
            project.pledger("start", "fulfil", f'{{"id": {number}, "sleep": 0.2}}', "--id", f"order-{number}", "--wait")
        assert two.stop(signal.SIGINT) == 0
        assert "stopping; running activities have 30 s" in two.log
        assert "stopped; every run is handed back" in two.log
    assert "workflows (Approval, buggy, fulfil, refund, refuse, ship, slow_to_stop, stubborn)" in one.log


def test_a_workers_log_names_run_step_and_attempt(project: Project) -> None:
    with project.worker("--json") as worker:
        project.pledger("start", "fulfil", '{"timeouts": 1}', "--id", "order-1", "--wait")
    lines = [json.loads(line) for line in worker.log.splitlines()]
    [charged] = [line for line in lines if line["message"] == "charged"]
    assert (charged["workflow_id"], charged["activity"], charged["attempt"]) == ("order-1", "charge_card", 2)
    with project.worker() as worker:
        project.pledger("start", "fulfil", "{}", "--id", "order-2", "--wait")
    assert "INFO    charged  [order-2 charge_card attempt 1]" in worker.log


def test_a_worker_serves_metrics(project: Project) -> None:
    with project.worker("--metrics-port", "0") as worker:
        project.pledger("start", "fulfil", '{"timeouts": 1}', "--id", "order-1", "--wait")
        served = re.search(r"metrics are served at (http://127\.0\.0\.1:\d+/metrics)", worker.log)
        assert served
        page = urllib.request.urlopen(served[1]).read().decode()
        port = served[1].split(":")[2].partition("/")[0]
        taken = project.pledger("worker", "shop", "--metrics-port", port, code=2).err
    labels = 'namespace="default",task_queue="default",workflow_type="fulfil"'
    assert f"pledger_workflow_completed_total{{{labels}}} 1.0" in page
    assert 'pledger_ledger_up{namespace="default"} 1.0' in page
    assert "process_cpu_seconds_total" in page
    assert "order-1" not in page
    assert f"metrics cannot be served at 127.0.0.1:{port}: " in taken


def test_a_killed_worker_is_seen_as_gone(project: Project) -> None:
    with project.worker("--lease", "500ms", "--identity", "one") as worker:
        project.pledger("start", "refund", "7", "--id", "refund-1")
        until(lambda: "attempt 2 at" in project.pledger("show", "refund-1").out)
        worker.stop(signal.SIGKILL)
    until(lambda: "no live worker" in project.pledger("show", "refund-1").out)
    assert "0 live" in project.pledger("doctor").out


def test_what_cannot_work_is_told_before_it_starts(project: Project) -> None:
    assert "there is no module 'nosuch'" in project.pledger("worker", "nosuch", code=2).err
    project.write("broken.py", "import shop\n1 / 0\n")
    broken = project.pledger("worker", "broken", code=2).err
    assert "broken cannot be imported: ZeroDivisionError" in broken
    assert 'broken.py", line 2' in broken
    assert "must be at least 0.1 s" in project.pledger("worker", "shop", "--lease", "1ms", code=2).err
    assert project.pledger("worker", "nosuch", "--json", code=2).error["type"] == "CodeError"


# Errors and terminals -------------------------------------------------------------------------------------------------


def test_of_what_is_not_there_the_message_says_what_is(project: Project) -> None:
    project.pledger("start", "fulfil", "{}", "--id", "order-1")
    missing = project.pledger("show", "nosuch", code=3)
    assert missing.err == "error: no workflow 'nosuch' in namespace 'default'; `pledger list` shows what there is\n"
    assert project.pledger("signal", "nosuch", "approve", "--json", code=3).error["type"] == "WorkflowNotFoundError"


def test_a_file_that_is_no_ledger(project: Project) -> None:
    project.ledger.write_text("hello, I am a text\n" * 100)
    assert "is not a SQLite database" in project.pledger("list", code=5).err
    checked = project.pledger("doctor", "--json", code=1).json
    assert checked["ok"] is False
    assert [each["state"] for each in checked["checks"]] == ["ok", "fail"]
    assert project.ledger.read_text().startswith("hello")


def test_a_ledger_in_order(project: Project) -> None:
    project.pledger("start", "fulfil", "{}", "--id", "order-1")
    checks = {each["name"]: each for each in project.pledger("doctor", "--json").json["checks"]}
    assert checks["durability"]["found"].startswith("power (synchronous=FULL)")
    assert checks["journal"]["found"].startswith("wal")
    assert checks["schema"]["found"].startswith("version ")
    assert checks["workers"]["state"] == "warn"
    project.ledger.chmod(0o644)
    assert f"chmod 600 {project.ledger}" in project.pledger("doctor").out


def test_in_a_pipe_ids_are_whole_and_nothing_is_coloured(project: Project) -> None:
    workflow_id = "order-" + "7421-" * 30
    project.pledger("start", "fulfil", "{}", "--id", workflow_id)
    for command in (["list"], ["show", workflow_id], ["doctor"]):
        out = project.pledger(*command, COLUMNS="40").out
        assert "\x1b" not in out
        assert workflow_id in out or command == ["doctor"]


def test_an_id_cannot_steer_the_terminal(project: Project) -> None:
    project.pledger("start", "fulfil", "{}", "--id", "order\x1b[2J[red]")
    assert "order\\x1b[2J[red]" in project.pledger("list").out
    missing = project.pledger("show", "no\x1b[2J", code=3)
    assert "\x1b" not in missing.err


def test_a_reader_that_has_seen_enough_is_no_error(project: Project) -> None:
    project.write("order.json", json.dumps({"text": "x" * 200_000}))
    project.pledger("start", "fulfil", "@order.json", "--id", "order-1")
    command = subprocess.Popen(
        project.command("history", "order-1", "--json"),
        cwd=project.directory,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None
    assert command.stderr is not None
    with command.stdout, command.stderr:
        command.stdout.close()
        assert command.stderr.read() == b""
    assert command.wait(PATIENCE_S) == 0


def test_an_interrupted_wait_says_so_by_its_code(project: Project) -> None:
    project.pledger("start", "fulfil", "{}", "--id", "order-1")
    command = subprocess.Popen(
        project.command("start", "fulfil", "{}", "--id", "order-1", "--wait"),
        cwd=project.directory,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    assert command.stderr is not None
    with command.stdout, command.stderr:
        assert "no live worker" in command.stderr.readline()
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE_S) == 130
        assert "Traceback" not in command.stderr.read()
