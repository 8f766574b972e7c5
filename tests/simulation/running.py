"""One simulated seed of the reference workflows, as the tests here run it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from pledger.codecs import AesGcm, KeyRing, PayloadCodec, Zstd
from pledger.engine.ahead import Pace
from pledger.history import secret
from pledger.testing import Faults, Simulation
from tests.reference import (
    activities,
    crowded,
    depending,
    further,
    handed_out,
    publishing,
    resetting,
    rolling,
    shop,
    workflows,
)
from tests.reference.cases import (
    CASES,
    CROWDED,
    DEPENDING,
    FURTHER,
    HANDED_OUT,
    PUBLISHING,
    RESETTING,
    ROLLING,
    SHOP,
    Case,
    every_run_ends_as_it_may,
    no_secret_is_kept,
    shops_books_are_right,
    start,
)

#: The tests of all seeds, by store.
FILES = {"memory": "test_seeds.py", "sqlite": "test_sqlite_seeds.py", "postgres": "test_server_seeds.py"}
#: Runs of one seed, when it draws its own.
RUNS = 6
#: Of seeds that encrypt.
KEYS = {"even": bytes(range(32)), "odd": bytes(range(1, 33))}


def prepare(seed: int, faults: Faults | None = None, cases: Sequence[Case] = (), **options: Any) -> Simulation:
    """faults: by default the seed draws its own mix. cases: by default it draws some.
    options: further ones of the simulation."""
    dice = random.Random(f"cases {seed}")
    workers = options.pop("workers", dice.choice([1, 2, 3]))
    if random.Random(f"retention {seed}").random() < 0.25:
        options.setdefault("retention", timedelta(seconds=2))
    namespaces = ["default", "other"][: min(workers, dice.choice([1, 2]))]
    drawn = list(cases) or _drawn(seed, dice, options.get("store", "memory"), is_whole=faults is None)
    # Where a worker knows anything that is limited or depends on something, all its claims go by order and limits.
    is_limited = any(each.workflow is further.rationed for each in drawn)
    parts = [
        part
        for part in (rolling, publishing, depending, crowded, resetting, shop, handed_out)
        if any(each.workflow in part.WORKFLOWS for each in drawn)
    ]
    if faults is None and not parts and random.Random(f"codecs {seed}").random() < 0.15:
        options.setdefault("codecs", chain(seed))
    further_activities = [each for each in further.ACTIVITIES if is_limited or not each.limits]
    sim = Simulation(
        seed,
        workflows=[
            *workflows.WORKFLOWS,
            *further.WORKFLOWS,
            *itertools.chain.from_iterable(part.WORKFLOWS for part in parts),
        ],
        activities=[
            *activities.ACTIVITIES,
            *further_activities,
            *itertools.chain.from_iterable(part.ACTIVITIES for part in parts),
        ],
        faults=Faults.swarm(seed, options.get("store", "memory")) if faults is None else faults,
        workers=workers,
        task_queues=["default", "elsewhere"],
        namespaces=namespaces,
        secrets=[shop.Vault()] if shop in parts else (),
        **options,
    )
    for number, each in enumerate(drawn, 1):
        start(sim, each, number)
    return sim


def _drawn(seed: int, dice: random.Random, store: str, *, is_whole: bool) -> list[Case]:
    """is_whole: the seed draws its faults too."""
    drawn = dice.sample(CASES, RUNS)
    # By dice of their own: one case more there would send every seed another way.
    if is_whole and random.Random(f"limits {seed}").random() < 0.25:
        drawn += [case("rationed")] * 2
    if is_whole and random.Random(f"dependencies {seed}").random() < 0.15:
        drawn += [case("booking")] * 2
    if is_whole and random.Random(f"chains {seed}").random() < 0.15:
        drawn += [case("rolling")] * 2
    if is_whole and random.Random(f"streams {seed}").random() < 0.1:
        drawn += [case("reciting")] * 2
    of_shop = random.Random(f"shop {seed}")
    if is_whole and of_shop.random() < 0.1:
        drawn += of_shop.sample([each for each in SHOP if each.beside is None or store == "sqlite"], 2)
    return drawn


def simulate(seed: int, faults: Faults | None = None, cases: Sequence[Case] = (), **options: Any) -> Simulation:
    """Run the seed and check it. Raises SimulationFailedError, with the command that runs it again."""
    sim = prepare(seed, faults, cases, **options)
    try:
        # By dice of their own, as above: few seeds have attempts that end so quickly that any is claimed ahead.
        with pytest.MonkeyPatch.context() as patch:
            if faults is None and not cases and random.Random(f"ahead {seed}").random() < 0.25:
                patch.setattr(Pace, "ahead", claim_ahead)
            patch.setattr(secret.known, "forms", ())  # what is learnt here is to be forgotten
            sim.run_until_idle()
        sim.check(
            every_run_ends_as_it_may, shops_books_are_right, no_secret_is_kept, publishing.each_value_is_published_once
        )
    except AssertionError as error:
        if faults is None and not cases:
            file = FILES[options.get("store", "memory")]
            error.add_note(f"Again: PLEDGER_SEEDS={seed} make test ARGS=tests/simulation/{file}")
        raise
    return sim


def chain(seed: int) -> list[PayloadCodec]:
    """Compressed, and encrypted with two keys, one for each half of the workflow ids."""
    keys = KeyRing(KEYS, current=lambda place: "even" if len(place.workflow_id) % 2 == 0 else "odd")
    return [Zstd(at_least=64), AesGcm(keys, entropy=random.Random(f"nonces {seed}").randbytes)]


def claim_ahead(self: Pace, at_s: float, slots: int) -> int:
    """Whatever the pace, until it was too much."""
    return min(3, slots) if self._ends else 0


def case(name: str) -> Case:
    every = [*CASES, *FURTHER, *ROLLING, *PUBLISHING, *DEPENDING, *CROWDED, *RESETTING, *SHOP, *HANDED_OUT]
    return next(each for each in every if each.name == name)
