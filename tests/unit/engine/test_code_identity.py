from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pledger
from pledger.engine.code_identity import code_identity, user_modules

FLOW = "async def fulfil(order): return order\n"


class Project:
    """Source files in a folder that is on the path, and what is imported from there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        importlib.invalidate_caches()

    def definition(self, module: str = "shop.flow", name: str = "fulfil") -> Callable[..., Any]:
        return getattr(importlib.import_module(module), name)

    def identity(self, *modules: str) -> str:
        return code_identity([self.definition(module) for module in modules or ["shop.flow"]], version="1")

    def changes(self, name: str) -> bool:
        """Whether the identity is another one after a change of this file; which is then taken back."""
        before = self.identity()
        text = (self.root / name).read_text()
        self.write(name, text + "\nchanged = True\n")
        after = self.identity()
        self.write(name, text)
        assert self.identity() == before
        return after != before


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    project = Project(tmp_path)
    project.write("shop/__init__.py", "")
    yield project
    for name in set(sys.modules) - known:
        del sys.modules[name]


def run_python(*args: str, at: Path, hash_seed: int = 0) -> str:
    path = os.pathsep.join([str(at), str(Path(pledger.__file__).parents[1])])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run([sys.executable, *args], env=env, cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# By source ------------------------------------------------------------------------------------------------------------


def test_it_is_twelve_hex_digits_and_changes_with_the_definition_and_with_pledger(project: Project) -> None:
    project.write("shop/flow.py", FLOW)
    identity = project.identity()
    assert len(bytes.fromhex(identity)) == 6
    assert project.changes("shop/flow.py")
    assert code_identity([project.definition()], version="2") != identity


@pytest.mark.parametrize(
    "statement",
    [
        "import shop.rules",
        "import shop.rules as rules",
        "import os, shop.rules",
        "import os; import shop.rules",
        "import os, \\\n    shop.rules",
        "if True: import shop.rules",
        "from shop import rules",
        "from shop.rules import RATE",
        "from . import rules",
        "from .rules import RATE",
        "from .rules import *",
        "from . import (\n    other,  # not (these) ones\n    rules,\n)",
        "from .inner.more import x",
        "def lazily():\n    from shop import rules\n",
        "try:\n    import shop.rules\nexcept ImportError: pass",
    ],
)
def test_what_the_workflow_imports_changes_it(project: Project, statement: str) -> None:
    project.write("shop/rules.py", "RATE = 0.2\n")
    project.write("shop/other.py", "")
    project.write("shop/inner/__init__.py", "")
    project.write("shop/inner/more.py", "from ..rules import RATE as x\n")
    project.write("shop/flow.py", statement + "\n" + FLOW)
    assert project.changes("shop/rules.py")
    assert project.changes("shop/__init__.py")


def test_what_a_package_imports_changes_it(project: Project) -> None:
    project.write("shop/__init__.py", "from .rules import RATE\n")
    project.write("shop/rules.py", "RATE = 0.2\n")
    project.write("shop/flow.py", FLOW)
    assert project.changes("shop/rules.py")


def test_what_it_does_not_import_does_not_change_it_loaded_or_not(project: Project) -> None:
    project.write("shop/flow.py", FLOW)
    project.write("shop/web.py", "import shop.flow\n")
    assert not project.changes("shop/web.py")
    importlib.import_module("shop.web")
    assert not project.changes("shop/web.py")


def test_what_is_imported_later_counts_from_the_start(project: Project) -> None:
    project.write("shop/flow.py", "async def fulfil(order):\n    from shop.late import rules\n")
    project.write("shop/late/__init__.py", "")
    project.write("shop/late/rules.py", "")
    before = project.identity()
    assert project.changes("shop/late/rules.py")
    assert "shop.late" not in sys.modules
    importlib.import_module("shop.late.rules")
    assert project.identity() == before


def test_text_that_looks_like_an_import_is_harmless(project: Project) -> None:
    project.write(
        "shop/flow.py", f'"""\nimport nothing of this kind\nfrom .... import x\nfrom us import (\n"""\n{FLOW}'
    )
    assert project.changes("shop/flow.py")


def test_modules_that_import_each_other_are_read_once(project: Project) -> None:
    project.write("shop/flow.py", "import shop.other\n" + FLOW)
    project.write("shop/other.py", "import shop.flow\n")
    assert project.changes("shop/other.py")


def test_namespace_packages_are_walked_through(project: Project) -> None:
    project.write("parts/rules.py", "")
    project.write("shop/flow.py", "import parts.rules\n" + FLOW)
    assert project.changes("parts/rules.py")


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_installed_packages_count_only_where_they_define_the_workflow(
    project: Project, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.syspath_prepend(str(project.root / folder))
    project.write(f"{folder}/vendor/__init__.py", "")
    project.write(f"{folder}/vendor/rules.py", "")
    project.write(f"{folder}/vendor/flow.py", "import vendor.rules\n" + FLOW)
    project.write("shop/flow.py", "import vendor.rules, json, pledger.workflow\n" + FLOW)
    assert [module.__name__ for module in user_modules([project.definition()])] == ["shop", "shop.flow"]
    assert not project.changes(f"{folder}/vendor/rules.py")
    before = project.identity("vendor.flow")
    project.write(f"{folder}/vendor/rules.py", "changed = True")
    assert project.identity("vendor.flow") != before


def test_neither_order_nor_repetition_of_the_definitions_matters(project: Project) -> None:
    project.write("shop/flow.py", FLOW)
    project.write("shop/refund.py", FLOW)
    one = project.identity("shop.flow", "shop.refund")
    assert one == project.identity("shop.refund", "shop.flow", "shop.refund")
    assert one != project.identity("shop.flow")


def test_a_decorated_definition_counts_where_it_is_written(project: Project) -> None:
    project.write(
        "deco.py",
        "import functools\n"
        "def traced(f):\n"
        "    @functools.wraps(f)\n"
        "    def inner(*args): return f(*args)\n"
        "    return inner\n",
    )
    project.write("shop/flow.py", "from deco import traced\n@traced\n" + FLOW)
    assert project.changes("shop/flow.py")
    assert project.changes("deco.py")


def test_a_class_is_a_definition(project: Project) -> None:
    project.write("shop/base.py", "class Base: pass\n")
    project.write("shop/flow.py", "from shop.base import Base\nclass fulfil(Base):\n    async def run(self): ...\n")
    assert project.changes("shop/flow.py")
    assert project.changes("shop/base.py")


def test_an_archive_is_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def pack(rate: float) -> str:
        with zipfile.ZipFile(project.root / f"{rate}.zip", "w") as archive:
            archive.writestr("packed/__init__.py", "")
            archive.writestr("packed/flow.py", "import packed.rules\n" + FLOW)
            archive.writestr("packed/rules.py", f"RATE = {rate}\n")
        monkeypatch.syspath_prepend(str(project.root / f"{rate}.zip"))
        for name in [name for name in sys.modules if name.startswith("packed")]:
            del sys.modules[name]
        return project.identity("packed.flow")

    assert len({pack(0.1), pack(0.2)}) == 2


def test_a_script_has_the_identity_that_it_has_when_imported(project: Project) -> None:
    project.write("shop/rules.py", "")
    project.write(
        "jobs.py",
        "from shop import rules\n"
        "from pledger.engine.code_identity import code_identity\n" + FLOW + "if __name__ == '__main__':\n"
        "    print(code_identity([fulfil], version='1'))\n",
    )
    project.write("shop/jobs.py", (project.root / "jobs.py").read_text())
    imported = "from {0} import *; print(code_identity([fulfil], version='1'))"
    as_script = run_python("jobs.py", at=project.root)
    as_module = run_python("-m", "shop.jobs", at=project.root)
    assert as_script == run_python("-c", imported.format("jobs"), at=project.root)
    assert as_module == run_python("-c", imported.format("shop.jobs"), at=project.root)
    assert as_script != as_module
    project.write("shop/rules.py", "changed = True")
    assert run_python("jobs.py", at=project.root) != as_script


def test_the_loaded_modules_are_told_by_the_name_they_run_under(project: Project) -> None:
    project.write("shop/rules.py", "")
    project.write(
        "jobs.py",
        "from shop import rules\n"
        "from pledger.engine.code_identity import user_modules\n" + FLOW + "def later(): import shop.unknown\n"
        "print(*[module.__name__ for module in user_modules([fulfil])])\n",
    )
    assert run_python("jobs.py", at=project.root) == "__main__ shop shop.rules"


# By bytecode ----------------------------------------------------------------------------------------------------------

PROMPT = """
from pledger.engine.code_identity import code_identity
def rate(country): return 0.2 if country in {"CH", "AT", "DE"} else 0.1
class Order:
    def total(self): return 1 + rate("CH")
async def fulfil(order, *, urgent=False):
    return [Order().total() for _ in (1, 2.0, "three", b"four", None, ...)]
print(code_identity([fulfil], version="1"))
"""


def test_code_without_a_source_is_the_same_in_every_process(tmp_path: Path) -> None:
    assert len({run_python("-c", PROMPT, at=tmp_path, hash_seed=seed) for seed in (1, 2, 3)}) == 1


def test_code_without_a_source_is_known_by_what_it_does(tmp_path: Path) -> None:
    known = run_python("-c", PROMPT, at=tmp_path)
    assert known == run_python("-c", PROMPT.replace("def rate", "\n\n# a comment\ndef rate"), at=tmp_path)
    for before, after in (
        ("0.2", "0.3"),
        ('"DE"', '"FR"'),
        ("1 + rate", "2 + rate"),
        ("2.0", "2"),
        ('b"four', '"four'),
    ):
        assert before in PROMPT
        assert known != run_python("-c", PROMPT.replace(before, after), at=tmp_path)


def test_code_that_was_run_in_a_bare_dictionary_has_an_identity_too() -> None:
    def made(result: str) -> str:
        names: dict[str, Any] = {}
        exec(f"class Order:\n    async def run(self): return {result}", names)
        return code_identity([names["Order"]], version="1")

    assert made("1") == made("1") != made("2")


def prompt(source: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that has no file."""
    module = ModuleType("prompt")
    monkeypatch.setitem(sys.modules, "prompt", module)
    exec(source, vars(module))
    return module


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return 1", "return 2"),
        ("return 1", "return True"),
        ("async def fulfil(o)", "async def fulfil(o, /)"),
        ("lambda: 3", "lambda: 4"),
        ("return 5", "return 6"),
        ("return 7", "return 8"),
        ("return 9", "return 0"),
        ("return 11", "return 12"),
        ("in {1, 2}", "in (1, 2)"),
    ],
)
def test_everything_that_code_without_a_source_names_counts(
    before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "def helper(): return 1\n"
        "def closing_over(f):\n"
        "    return lambda: f()\n"
        "kept = closing_over(lambda: (lambda: 3))\n"
        "class Base:\n"
        "    @staticmethod\n"
        "    def static(): return 5\n"
        "    @property\n"
        "    def seen(self): return 7\n"
        "class Order(Base):\n"
        "    @classmethod\n"
        "    def make(cls): return 9\n"
        "class Clerk:\n"
        "    def checks(self): return 11\n"
        "checks = Clerk().checks\n"
        "async def fulfil(o): return helper(), kept(), Order(), checks(), o in {1, 2}\n"
    )
    assert before in source
    one = code_identity([prompt(source, monkeypatch).fulfil], version="1")
    assert one == code_identity([prompt(source, monkeypatch).fulfil], version="1")
    assert one != code_identity([prompt(source.replace(before, after), monkeypatch).fulfil], version="1")


@pytest.mark.parametrize(
    "source",
    [
        "import shop.rules\nasync def fulfil(o): return shop.rules.rate()",
        "import shop.rules as r\nasync def fulfil(o): return r.rate()",
        "from shop.rules import rate\nasync def fulfil(o): return rate()",
        "from shop.rules import Base\nclass fulfil(Base): ...",
    ],
)
def test_code_without_a_source_reaches_files(project: Project, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    project.write("shop/rules.py", "def rate(): ...\nclass Base:\n    async def run(self): ...\n")
    fulfil = prompt(source, monkeypatch).fulfil
    assert [module.__name__ for module in user_modules([fulfil])] == ["prompt", "shop", "shop.rules"]


def test_running_the_code_does_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = prompt("def fulfil(n):\n    total = 0\n    for i in range(n): total += i\n    return total", monkeypatch)
    before = code_identity([module.fulfil], version="1")
    module.fulfil(100_000)  # the interpreter specializes what runs often
    assert code_identity([module.fulfil], version="1") == before
