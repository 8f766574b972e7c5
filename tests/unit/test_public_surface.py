"""What `from pledger import ...` gives is a promise: exactly these names, and nothing heavy behind them."""

import importlib
import subprocess
import sys

import pytest

import pledger

SURFACE = {
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
}
FACES = ["pledger", "pledger.activity", "pledger.client", "pledger.errors", "pledger.worker", "pledger.workflow"]


def test_all_is_the_public_surface() -> None:
    assert sorted(pledger.__all__) == sorted(SURFACE)


@pytest.mark.parametrize("name", sorted(SURFACE))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pledger, name) is not None


def test_nothing_else_looks_public() -> None:
    assert {name for name in dir(pledger) if not name.startswith("_")} == SURFACE


def test_a_name_that_is_not_there_is_told_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'pledger' has no attribute 'Klient'"):
        pledger.Klient  # noqa: B018 - that it is asked for is the test


def test_who_only_defines_workflows_loads_neither_client_nor_worker() -> None:
    code = "import sys, pledger; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"pledger.client", "pledger.worker", "pledger.sync", "pledger.store", "apsw"}.isdisjoint(loaded)


@pytest.mark.parametrize("face", FACES)
def test_a_face_says_what_is_public_in_it(face: str) -> None:
    module = importlib.import_module(face)
    missing = [name for name in module.__all__ if not hasattr(module, name)]
    assert missing == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_library_loads_without_what_only_the_command_line_needs() -> None:
    # In a process of its own: here, other tests have long imported everything.
    code = "import sys, pledger; [getattr(pledger, n) for n in pledger.__all__]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"typer", "click", "rich", "sqlglot", "pydantic", "attrs"}.isdisjoint(loaded)
