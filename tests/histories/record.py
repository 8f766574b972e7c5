"""Record the golden histories that are missing: `python -m tests.histories.record`, in the root of the checkout.

They are recorded in a simulation without faults: its clock, ids and schedule come from a seed, so that a recording can
be made again, byte for byte. No wait may be longer than a simulation lasts, which is ten minutes. A history that is
there is never recorded anew: it stands for the ledgers that users have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from pledger.client import History
from pledger.history import chains, secret
from pledger.testing import Caller, Simulation
from tests.histories.cases import CASES, Case
from tests.histories.models import ask_guest, change
from tests.histories.shop import Vault
from tests.histories.workflows import ACTIVITIES

SEED: Final = 1
#: A file in an exported traceback; its last two parts say enough, the others are of the machine that recorded it.
_FILE: Final = re.compile(rb'File \\"(?:[^"\\]*/)?([^/"\\]+/[^/"\\]+)\\"')
#: Fields that say nothing to a reader, and options that say nothing unless they were chosen.
_DULL: Final = frozenset({"seed", "task_queue", "fire_at_ms"})
_DEFAULTS: Final = {"start_to_close_ms": 600_000, "cancellation": "try"}


def record(case: Case, *, cached: bool = True) -> bytes:
    """The history of one run of the case, as JSON text. cached: False has its worker keep no run in memory."""
    found: list[History] = []

    async def follow(caller: Caller) -> None:
        if case.then is not None:
            await case.then(caller)
        await caller.outcome()
        if case.of is None:
            run_id = chains.run_id_of(caller.run_id, case.segment)
            handle = caller._client.handle(caller.workflow_id, run_id=run_id)
        else:
            handle = caller._client.handle(case.of)
        found.append(await handle.history())

    workflow = case.recorded_by or case.workflow
    simulation = Simulation(
        SEED,
        workflows=[workflow, *case.knows],
        activities=[*ACTIVITIES, ask_guest, change, *case.activities],
        workers=1,
        limits=case.limits if cached else replace(case.limits, cached_runs_max=0),
        secrets=[Vault()],
    )
    simulation.start(workflow, *case.args, id=case.name, then=follow, within_s=0.0)
    known = secret.known.forms
    try:
        simulation.run_until_idle()
    finally:
        secret.known.forms = known  # what was learnt is forgotten: other tests know of no secret
    return _FILE.sub(rb'File \\"\1\\"', found[-1].export()) + b"\n"


def tell(history: History) -> str:
    """The numbered events for people, a paragraph for each transition. Seconds since the start, then what and how."""
    events = iter(history.events)
    began = history.events[0].time
    paragraphs = []
    for transition in history.transitions:
        lines = []
        for _ in transition.events():
            event = next(events)
            seconds = (event.time - began).total_seconds()
            lines.append(f"{event.event_id:3} {seconds:12.3f}  {event.type:<24}{_in_short(event.attributes)}".rstrip())
        paragraphs.append("\n".join(lines) + "\n")
    return "\n".join(paragraphs)


def _in_short(attributes: Mapping[str, Any]) -> str:
    told = {name: value for name, value in attributes.items() if name not in _DULL}
    options = told.pop("options", {})
    told |= {name: value for name, value in options.items() if _DEFAULTS.get(name) != value}
    return "  ".join(f"{name}={_value(value)}" for name, value in told.items())


def _value(value: Any) -> str:
    if isinstance(value, dict) and "message" in value:
        return " <- ".join(f"{each['type']}({each['message']})" for each in _causes(value))
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _causes(failure: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The failure, then what caused it, down to the first."""
    cause: Mapping[str, Any] | None = failure
    while cause is not None:
        yield cause
        cause = cause.get("cause")


def main() -> None:
    for case in CASES:
        if not case.json.exists():
            case.json.write_bytes(record(case))
        if not case.text.exists():
            case.text.write_text(tell(case.read()), encoding="utf-8")


if __name__ == "__main__":
    main()
