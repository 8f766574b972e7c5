"""One simulated seed of the reference workflows, as the tests here run it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from pledger.testing import Faults, Simulation
from tests.reference import activities, further, workflows
from tests.reference.cases import CASES, FURTHER, Case, every_run_ends_as_it_may, start

#: The tests of all seeds, by store.
FILES = {"memory": "test_seeds.py", "sqlite": "test_sqlite_seeds.py", "postgres": "test_server_seeds.py"}
#: Runs of one seed, when it draws its own.
RUNS = 6


def prepare(seed: int, faults: Faults | None = None, cases: Sequence[Case] = (), **options: Any) -> Simulation:
    """faults: by default the seed draws its own mix. cases: by default it draws some.
    options: further ones of the simulation."""
    dice = random.Random(f"cases {seed}")
    workers = options.pop("workers", dice.choice([1, 2, 3]))
    if random.Random(f"retention {seed}").random() < 0.25:
        options.setdefault("retention", timedelta(seconds=2))
    # Where a worker serves anything that is limited, all its claims go by order and limits.
    is_limited = any(each.workflow is further.rationed for each in cases)
    if not cases and faults is None:
        is_limited = random.Random(f"limits {seed}").random() < 0.25
    sim = Simulation(
        seed,
        workflows=[*workflows.WORKFLOWS, *further.WORKFLOWS],
        activities=[*activities.ACTIVITIES, *(each for each in further.ACTIVITIES if is_limited or not each.limits)],
        faults=Faults.swarm(seed, options.get("store", "memory")) if faults is None else faults,
        workers=workers,
        task_queues=["default", "elsewhere"],
        namespaces=["default", "other"][: min(workers, dice.choice([1, 2]))],
        **options,
    )
    drawn = list(cases) or dice.sample(CASES, RUNS)
    if is_limited and not cases:
        drawn += [case("rationed")] * 2
    for number, each in enumerate(drawn, 1):
        start(sim, each, number)
    return sim


def simulate(seed: int, faults: Faults | None = None, cases: Sequence[Case] = (), **options: Any) -> Simulation:
    """Run the seed and check it. Raises SimulationFailedError, with the command that runs it again."""
    sim = prepare(seed, faults, cases, **options)
    try:
        sim.run_until_idle()
        sim.check(every_run_ends_as_it_may)
    except AssertionError as error:
        if faults is None and not cases:
            file = FILES[options.get("store", "memory")]
            error.add_note(f"Again: PLEDGER_SEEDS={seed} make test ARGS=tests/simulation/{file}")
        raise
    return sim


def case(name: str) -> Case:
    return next(each for each in [*CASES, *FURTHER] if each.name == name)
