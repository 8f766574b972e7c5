"""What the lint finds in the text of workflow code, and what it leaves alone."""

from __future__ import annotations

import textwrap

import pytest

from pledger.machine.lint import Finding, lint

HEAD = """\
import asyncio, contextlib, datetime, os, random, secrets, socket, subprocess, threading, time, uuid
import urllib.parse, urllib.request
import datetime as dt
from datetime import date
from time import monotonic as clock
import httpx, requests
import pledger
from pledger import activity, workflow

@activity.defn
async def charge(order): ...
async def step(order): ...
"""


def found(body: str) -> list[Finding]:
    """In a workflow with this body."""
    return lint(f"{HEAD}\n@workflow.defn\nasync def fulfil(order, loop, names):\n{textwrap.indent(body, '    ')}\n")


def whats(source: str) -> list[str]:
    return [each.what for each in lint(HEAD + textwrap.dedent(source))]


# Calls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "name", "remedy"),
    [
        ("datetime.datetime.now(datetime.UTC)", "datetime.datetime.now", "workflow.now()"),
        ("dt.datetime.utcnow()", "datetime.datetime.utcnow", "workflow.now()"),
        ("dt.datetime.today()", "datetime.datetime.today", "workflow.now()"),
        ("date.today()", "datetime.date.today", "workflow.now()"),
        ("time.time()", "time.time", "workflow.time()"),
        ("clock()", "time.monotonic", "workflow.time()"),
        ("time.strftime('%Y')", "time.strftime", "workflow.time()"),
        ("time.sleep(1)", "time.sleep", "await asyncio.sleep()"),
        ("random.choice(names)", "random.choice", "workflow.random()"),
        ("random.Random()", "random.Random", "workflow.random()"),
        ("secrets.token_hex()", "secrets.token_hex", "workflow.random()"),
        ("uuid.uuid1()", "uuid.uuid1", "workflow.uuid4()"),
        ("uuid.uuid4()", "uuid.uuid4", "workflow.uuid4()"),
        ("os.urandom(8)", "os.urandom", "workflow.random() or workflow.uuid4()"),
        ("threading.Thread(target=print)", "threading.Thread", "asyncio.create_task(), or do it in an activity"),
        ("asyncio.to_thread(print)", "asyncio.to_thread", "asyncio.create_task(), or do it in an activity"),
        ("loop.run_in_executor(None, print)", "<object>.run_in_executor", None),
        ("subprocess.run(['ls'])", "subprocess.run", "do it in an activity"),
        ("os.system('ls')", "os.system", "do it in an activity"),
        ("socket.socket()", "socket.socket", "do it in an activity"),
        ("requests.get('http://shop')", "requests.get", "do it in an activity"),
        ("httpx.AsyncClient()", "httpx.AsyncClient", "do it in an activity"),
        ("urllib.request.urlopen('http://shop')", "urllib.request.urlopen", "do it in an activity"),
        ("open('orders.txt')", "open", "read and write files in an activity"),
        ("order.path.read_text()", "<object>.read_text", "read and write files in an activity"),
        ("asyncio.as_completed([step(name) for name in names])", "asyncio.as_completed", "workflow.as_completed()"),
    ],
)
def test_a_call_is_found_and_its_remedy_told(call: str, name: str, remedy: str | None) -> None:
    [finding] = found(f"x = 1\ny = {call}")
    assert (finding.what, finding.workflow) == (f"{name}()", "fulfil")
    assert (finding.line, finding.column) == (HEAD.count("\n") + 5, 9)
    assert finding.reason
    assert remedy in (finding.remedy, None)


@pytest.mark.parametrize(
    "harmless",
    [
        "workflow.now(); workflow.time(); workflow.random().choice(names); workflow.uuid4()",
        "await asyncio.sleep(1)",
        "random.Random(7)",
        "time.strftime('%Y', time.gmtime(0))",
        "secrets.compare_digest('a', 'b')",
        "urllib.parse.urlsplit(order)",
        "datetime.datetime.fromisoformat(order)",
        "random = workflow.random(); random.random()",  # hides the module
        "open = order.open; open('door')",
        "asyncio.as_completed([asyncio.create_task(step(name)) for name in names])",
        "with workflow.unsafe.guards_off():\n    time.time()",
        "def later(time): return time.time()",
    ],
)
def test_what_does_no_harm(harmless: str) -> None:
    assert found(harmless) == []


# Where ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        "@workflow.defn",
        "@workflow.defn(name='Fulfil')",
        "@pledger.workflow.defn",
        "from pledger import workflow as flow\n@flow.defn",
        "from pledger.workflow import defn as durable\n@durable(owner='shop')",
    ],
)
def test_a_workflow_is_known_by_its_decorator_under_any_name(head: str) -> None:
    assert whats(f"{head}\nasync def fulfil():\n    time.time()\n") == ["time.time()"]


def test_helpers_of_the_module_are_looked_at_once_and_others_not() -> None:
    assert whats(
        """
        def stamp(): return later()
        def later(): return (time.time(), stamp())
        def unused(): return time.monotonic()

        @activity.defn
        def outside(): return time.sleep(1)

        @workflow.defn
        async def one(): return stamp(), await outside()

        @workflow.defn
        async def two(): await workflow.wait_condition(stamp)
        """
    ) == ["time.time()"]


def test_a_class_is_looked_at_with_its_bases_handlers_and_inner_functions() -> None:
    assert whats(
        """
        class Base:
            imported = time.time()
            def tick(self): time.monotonic()

        @workflow.defn
        class Order(Base):
            @workflow.signal
            def approve(self): self.at = date.today()

            @workflow.run
            async def run(self):
                def inner(at=time.time()): return uuid.uuid4()
                return sorted([], key=lambda _: random.random())
        """
    ) == ["time.monotonic()", "datetime.date.today()", "time.time()", "uuid.uuid4()", "random.random()"]


def test_a_workflow_within_a_function_sees_the_names_around_it() -> None:
    assert whats(
        """
        def make():
            from time import time as now

            @workflow.defn
            async def fulfil(): return now()
        """
    ) == ["time.time()"]


# Statements -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("for name in set(names):\n    await charge(name)", "iteration over a set"),
        ("for name in {'a', 'b'} | order:\n    handles = charge(name)", "iteration over a set"),
        ("for _, name in enumerate(frozenset(names)):\n    asyncio.create_task(order)", "iteration over a set"),
        ("return await asyncio.gather(*(step(name) for name in set(names)))", "iteration over a set"),
        ("try:\n    await order\nexcept:\n    pass", "except:"),
        ("try:\n    await order\nexcept (KeyError, BaseException):\n    pass", "except (KeyError, BaseException):"),
        ("with contextlib.suppress(BaseException):\n    await order", "contextlib.suppress()"),
        ("charge(order)", "charge()"),
        ("workflow.start_activity('charge', order)", "workflow.start_activity()"),
    ],
)
def test_a_statement_is_found(body: str, what: str) -> None:
    assert [each.what for each in found(body)] == [what]


@pytest.mark.parametrize(
    "body",
    [
        "for name in sorted(set(names)):\n    await charge(name)",
        "for name in set(names):\n    order.add(name)",
        "return [task.get_name() for task in {asyncio.create_task(step(name)) for name in names}]",
        "try:\n    await order\nexcept BaseException:\n    order.undo()\n    raise",
        "try:\n    await order\nexcept asyncio.CancelledError:\n    raise\nexcept BaseException:\n    pass",
        "try:\n    order.parse()\nexcept:\n    pass",  # cancellation does not arrive here
        "try:\n    await order\nexcept Exception:\n    pass",
        "await charge(order)",
        "handle = charge(order)",
    ],
)
def test_a_statement_that_does_no_harm(body: str) -> None:
    assert found(body) == []


# Comments, and text that cannot be read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        "time.time()  # pledger: allow",
        "time.time()  # noqa: X  # pledger:allow - only for the log",
        "random.choice(  # pledger: allow\n    names\n)",
        "random.choice(\n    names\n)  # pledger: allow",
        "try:\n    await order\nexcept:  # pledger: allow it ends anyhow\n    pass",
    ],
)
def test_a_comment_lets_it_through(body: str) -> None:
    assert found(body) == []


def test_a_comment_lets_only_its_own_lines_through() -> None:
    [finding] = found("time.time()  # pledger: allow\ntime.monotonic()  # pledger: allowance")
    assert finding.what == "time.monotonic()"


def test_a_text_that_does_not_parse_is_one_finding() -> None:
    [finding] = lint("import time\ndef f(:\n")
    assert (finding.line, finding.column, finding.what, finding.workflow) == (2, 7, "syntax error", "")
    assert [each.what for each in lint("x = '\0'")] == ["syntax error"]


def test_odd_texts() -> None:
    assert lint("") == []
    assert lint("x = '\\d'") == []  # Python warns of it
    assert lint(f"x = {'+'.join('1' * 800)}") == []


# What has no deadline and no owner ------------------------------------------------------------------------------------

WAITS = """\
from pledger import workflow
from pledger.workflow import defn, wait_condition

@workflow.defn
async def bare():
    await wait_condition(lambda: True)
    await workflow.wait_condition(lambda: True, timeout=None)

@defn(owner="ada", deadline=LONG)
async def stated():
    await wait_condition(lambda: True, timeout=5)
    await wait_condition(lambda: True, deadline=LONG, owner="bob")
    await wait_condition(lambda: True, **options)

@defn(deadline=None, owner="ada")  # pledger: allow, it is to last
async def allowed(): ...

@defn(**options)
async def unknown(): ...
"""


def test_what_has_no_deadline_and_no_owner_is_found_where_it_is_asked_for() -> None:
    assert lint(WAITS) == []
    assert [(each.line, each.what) for each in lint(WAITS, waits=True)] == [
        (4, "workflow bare without deadline"),
        (4, "workflow bare without owner"),
        (6, "pledger.workflow.wait_condition()"),
        (7, "pledger.workflow.wait_condition()"),
    ]
