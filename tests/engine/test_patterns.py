"""`examples/patterns`, on every store: what they tell is what they teach, and their histories are replayed.

All on one ledger, beside what the others have left there: a ledger of its own for each would take longer than they do.
"""

from __future__ import annotations

import importlib

import pytest

from examples.patterns.catalogue import __main__ as catalogue
from examples.patterns.catalogue.index import PATTERNS, WORKFLOWS
from tests.engine.harness import Ledger

TOLD = {
    "fan_out": """\
Genesis: 3 pages of [3, 6, 4] words, 13 in all
Nothing: 0 pages of [] words, 0 in all
""",
    # Attempts are no events.
    "polling": """\
lamp is delivered: asked 2 times, 4 events
piano is delivered: asked 30 times, 4 events
ring is given up: asked in vain, 4 events
""",
    "graph": """\
shop(web(base), payments(base, crypto(base)))
5 packages were built, each once
Cycle: egg needs hen needs egg
""",
    "scatter": """\
Ada: 420
Bob: 390
Cy: 450
Dan: Refused: we do not make it any more
Eve: ConnectionError: the line is dead
Fay: no answer in time
tender-2 failed: TooFewOffers: 1 of 2 offers
""",
    "approval": """\
a lamp: approved by Mia, signed by Nora
a piano: approved by Dora, signed by Nora
a yacht: refused by Mia
a hat: nobody has decided
""",
    "entity": """\
Account(points=0, purchases=40, gifts=4)
a chain of runs, each with a short history
""",
    "mutex": """\
quick is printed
slow is stopped: Fenced: fence 2 is out of date
  fence 1: lost page 1
  fence 2: slow page 1
  fence 3: quick page 1
  fence 3: quick page 2
granted 3 times
""",
    "sliding_window": """\
39 done, 0 lost, failed: {13: 'Malformed: not in our format'}
a chain of runs, each with a short history
""",
}


async def test_each_tells_what_it_teaches(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    for name, told in TOLD.items():
        pattern = importlib.import_module(f"examples.patterns.{name}")
        ledger.options(*pattern.WORKFLOWS)
        await pattern.main(ledger.url)
        assert capsys.readouterr().out == told, name


async def test_every_control_flow_pattern_comes_to_its_end(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.options(*WORKFLOWS)
    await catalogue.main(ledger.url)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(PATTERNS) == 43
    for pattern, line in zip(PATTERNS, told, strict=True):
        ended = "cancelled" if pattern.name == "Cancel Case" else pattern.result
        assert line == f"{pattern.workflow_id:<7} {pattern.name}: {ended}"
