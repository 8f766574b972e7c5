"""The features that Pledger is to have and has not yet, each with how one can tell: what waits for one must not go on
waiting once it is there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Final

from pledger import activity


def _has(owner: object, *names: str) -> Callable[[], bool]:
    return lambda: any(hasattr(owner, name) for name in names)


def _is_there(*modules: str) -> Callable[[], bool]:
    def found() -> bool:
        parents = [name for name in modules if importlib.util.find_spec(name.rpartition(".")[0]) is not None]
        return any(importlib.util.find_spec(name) is not None for name in parents)

    return found


def _takes(function: Callable[..., object], name: str) -> Callable[[], bool]:
    return lambda: name in function.__annotations__


#: By name: whether it is there, as far as one can see from outside.
MISSING: Final[dict[str, Callable[[], bool]]] = {
    "Amazon States Language": _is_there("pledger.dialects.asl"),
    "DAGs": _is_there("pledger.dialects.dag"),
    "KPIs": _is_there("pledger.ops.kpis", "pledger.ops.kpi"),
    "effects": _takes(activity.defn, "readback"),
    "expressions in definitions": _is_there("pledger.dialects"),
    "sagas": _is_there("pledger.patterns.saga", "pledger.patterns.sagas"),
    "schedules": _is_there("pledger.ops.schedules"),
    "server": _is_there("pledger.server"),
    "state machines": _is_there("pledger.dialects.fsm"),
}


def stale(waits_for: list[str]) -> list[str]:
    """Those of these features that are there, or that nobody knows."""
    return [name for name in waits_for if name not in MISSING or MISSING[name]()]
