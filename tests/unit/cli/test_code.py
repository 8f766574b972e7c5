from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pledger.cli.code import CodeError, load_code

SHOP = """
from datetime import timedelta
from types import SimpleNamespace
from pledger import activity, workflow
import math

@activity.defn
async def charge(order: int) -> int: return order

@activity.defn(name="book-courier")
def book(order: int) -> int: return order

@workflow.defn
async def fulfil(order: int) -> int: return await charge(order)

@workflow.defn(name="approval")
class Approval:
    @workflow.run
    async def run(self) -> None: pass

class NotDecorated(Approval): pass

everything = [fulfil, Approval, charge]
crew = SimpleNamespace(workflows=[fulfil], activities=(book,))
nothing = []
wrong = [fulfil, math.sin]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Writes modules into the working directory, which is not on the path by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()

    write("shop.py", SHOP)
    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("target", "workflows", "activities"),
    [
        ("shop", {"fulfil", "approval"}, {"charge", "book-courier"}),
        ("shop:everything", {"fulfil", "approval"}, {"charge"}),
        ("shop:crew", {"fulfil"}, {"book-courier"}),
        ("shop:fulfil", {"fulfil"}, set()),
        ("shop:charge", set(), {"charge"}),
        ("shop:crew.workflows", {"fulfil"}, set()),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_a_target_defines(target: str, workflows: set[str], activities: set[str]) -> None:
    code = load_code(target)
    assert set(code.workflows) == workflows
    assert set(code.activities) == activities


def test_what_a_module_imports_counts_too(project: Callable[[str, str], None]) -> None:
    project("flows/__init__.py", "")
    project("flows/app.py", "import shop\nfrom shop import fulfil, charge\n")
    code = load_code("flows.app")
    assert (set(code.workflows), set(code.activities)) == ({"fulfil"}, {"charge"})
    assert set(load_code("flows.app:shop").workflows) == {"fulfil", "approval"}


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("nosuch", "there is no module 'nosuch'"),
        ("nosuch.deeper", "there is no module 'nosuch'"),
        ("shop.deeper", "there is no module 'shop.deeper'"),
        ("shop.py", "name the module, not its file: shop"),
        ("./flows/app.py", "not its file: flows.app"),
        ("shop:nosuch", "module shop has no 'nosuch'"),
        ("shop:nothing", "has no workflows and no activities"),
        ("shop:wrong", "lists <built-in function sin>"),
        ("shop:timedelta", "neither a workflow nor an activity"),
        ("shop:NotDecorated", "neither a workflow nor an activity"),
        ("shop:", "write module or module:attribute"),
        (":shop", "write module or module:attribute"),
        ("", "write module or module:attribute"),
        ("math", "has no workflows and no activities"),
    ],
)
@pytest.mark.usefixtures("project")
def test_what_is_no_target_is_told_why(target: str, told: str) -> None:
    with pytest.raises(CodeError) as caught:
        load_code(target)
    assert told in str(caught.value)


def test_a_module_that_fails_shows_its_own_line_and_not_ours(project: Callable[[str, str], None]) -> None:
    project("broken.py", "import shop\n\nshop.nosuch()\n")
    with pytest.raises(CodeError) as caught:
        load_code("broken")
    told = str(caught.value)
    assert "broken cannot be imported: AttributeError" in told
    assert 'broken.py", line 3' in told
    assert "importlib" not in told
    assert "pledger/cli" not in told


def test_a_missing_import_of_the_module_is_its_own_failure(project: Callable[[str, str], None]) -> None:
    project("needy.py", "import nosuch_library\n")
    with pytest.raises(CodeError, match="needy cannot be imported: ModuleNotFoundError: No module named 'nosuch_lib"):
        load_code("needy")


def test_a_module_that_leaves_does_not_end_the_command(project: Callable[[str, str], None]) -> None:
    project("leaving.py", "raise SystemExit(0)\n")
    with pytest.raises(CodeError, match="leaving cannot be imported: SystemExit"):
        load_code("leaving")


def test_two_definitions_of_one_name(project: Callable[[str, str], None]) -> None:
    project("twice.py", SHOP + "first = charge\n@activity.defn\nasync def charge(order: int) -> int: return 1\n")
    with pytest.raises(CodeError, match="twice has two definitions of 'charge'"):
        load_code("twice")
