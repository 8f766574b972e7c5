"""The labs, run as their page says: what they tell is what they teach."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CRASH = """\
Without an idempotency key:
  a worker charges the card and dies of SIGKILL
      the ledger's last word: ActivityScheduled  the statement: 49.00
  another one takes over, charges it again and gets receipt 2
      the ledger's last word: RunCompleted       the statement: 49.00 + 49.00
With one:
  a worker charges the card and dies of SIGKILL
      the ledger's last word: ActivityScheduled  the statement: 49.00
  another one takes over, charges it again and gets receipt 3
      the ledger's last word: RunCompleted       the statement: 49.00
"""

COURIER = """\
Monday, no courier drives
  order-1: a new run
    asked of the outside: charge, courier, refund
    NotSent: order-1 is not sent, since CourierRefused: no courier drives today
Tuesday, couriers drive again
  order-1: the run that there is
    asked of the outside: nothing
    NotSent: order-1 is not sent, since CourierRefused: no courier drives today
  order-1-second-try: a new run
    asked of the outside: charge, courier
    order-1 is on its way
"""

CHANGE = """\
The old code runs, and order-1 begins
A step is added for everyone, and order-1 is paid
  it is blocked by NondeterminismError:
    recorded at event 2: ScheduleActivity 'reserve_stock'
    asked by the new code: ScheduleActivity 'check_address'
The step is added behind a patch, and order-2 begins
  order-1 ends: stock for order-1 reserved, order-1 shipped
  order-2 ends: address of order-2 checked, stock for order-2 reserved, order-2 shipped
"""


@pytest.mark.parametrize(
    ("lab", "told"),
    [
        pytest.param("crash", CRASH, id="charged twice without a key, once with it"),
        pytest.param("courier", COURIER, id="a recorded failure is told again"),
        pytest.param("change", CHANGE, id="blocked by a new step, not by a patched one"),
    ],
)
def test_lab(lab: str, told: str) -> None:
    command = [sys.executable, "-W", "error", "-m", f"examples.labs.{lab}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout, ended.returncode) == (told, 0), ended.stderr
