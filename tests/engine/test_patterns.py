"""`examples/patterns`, on every store: what they tell is what they teach, and their histories are replayed."""

from __future__ import annotations

import importlib

import pytest

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


@pytest.mark.parametrize("name", TOLD)
async def test_pattern(name: str, ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    pattern = importlib.import_module(f"examples.patterns.{name}")
    ledger.options(*pattern.WORKFLOWS)
    await pattern.main(ledger.url)
    assert capsys.readouterr().out == TOLD[name]
