"""Pledger: durable workflows for Python. The engine is a ledger; the steps are promises.

from pledger import Client, SyncClient, Worker, activity, connect, errors, run, workflow
from pledger import CircuitBreaker, Limit, Priority, RetryBudget, RetryPolicy
from pledger import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from pledger import activity, errors, workflow
from pledger.history.attributes import (
    SearchAttributeKey,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
)
from pledger.history.budget import CircuitBreaker, RetryBudget
from pledger.history.placement import Limit, Priority
from pledger.history.retry import RetryPolicy
from pledger.history.secret import Secret

if TYPE_CHECKING:
    from pledger.client import Client, connect
    from pledger.engine.secrets import CommandSecrets, EnvironmentSecrets, FileSecrets
    from pledger.sync import SyncClient, run
    from pledger.worker import Worker

__all__ = [
    "CircuitBreaker",
    "Client",
    "CommandSecrets",
    "EnvironmentSecrets",
    "FileSecrets",
    "Limit",
    "Priority",
    "RetryBudget",
    "RetryPolicy",
    "SearchAttributeKey",
    "SearchAttributePair",
    "SearchAttributeUpdate",
    "Secret",
    "SyncClient",
    "TypedSearchAttributes",
    "Worker",
    "activity",
    "connect",
    "errors",
    "run",
    "workflow",
]

#: Loaded when first asked for: many programs, and every process that an activity gets for itself, only define things.
_LATER: Final = {
    "Client": "pledger.client",
    "connect": "pledger.client",
    "SyncClient": "pledger.sync",
    "run": "pledger.sync",
    "Worker": "pledger.worker",
    "CommandSecrets": "pledger.engine.secrets",
    "EnvironmentSecrets": "pledger.engine.secrets",
    "FileSecrets": "pledger.engine.secrets",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'pledger' has no attribute {name!r}")
    found = getattr(importlib.import_module(_LATER[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
