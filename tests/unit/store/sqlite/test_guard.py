"""Two SQLite libraries in one process: what the second one does to a ledger that the first has open, and the guard."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pledger.errors import UsageError
from pledger.store.sqlite import open_sqlite

ROOT = Path(__file__).parents[4]

#: Holds the write lock while the standard library looks into the file, and asks another process whether it is locked.
TWO_LIBRARIES = """
import contextlib, sqlite3, subprocess, sys
from pledger.errors import UsageError
from pledger.store.sqlite import guard, open_sqlite

ASK = '''
import apsw, sys
connection = apsw.Connection(sys.argv[1])
try:
    connection.execute("BEGIN IMMEDIATE")
    print("free")
except apsw.BusyError:
    print("locked")
'''
path, guarded = sys.argv[1], sys.argv[2] == "guarded"
if not guarded:
    guard._check = lambda database: None

def ask():
    return subprocess.run([sys.executable, "-c", ASK, path], capture_output=True, text=True, check=True).stdout.strip()

store = open_sqlite(path)
store._database.writer.connection.execute("BEGIN IMMEDIATE")
before = ask()
with contextlib.suppress(UsageError), contextlib.closing(sqlite3.connect(path)) as second:
    second.execute("SELECT count(*) FROM sqlite_schema").fetchall()
print(before, ask())
"""


@pytest.mark.parametrize(("guarded", "after"), [("unguarded", "free"), ("guarded", "locked")])
def test_a_second_library_loses_the_first_ones_locks_and_the_guard_prevents_it(
    tmp_path: Path, guarded: str, after: str
) -> None:
    # In a process of its own: what it breaks, and that nothing guards it, concerns no other test.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])}
    command = [sys.executable, "-c", TWO_LIBRARIES, str(tmp_path / "ledger.db"), guarded]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    assert ended.stdout.split() == ["locked", after]


def _names(path: Path) -> dict[str, object]:
    link, hard = path.with_name("link.db"), path.with_name("hard.db")
    link.symlink_to(path)
    os.link(path, hard)
    return {
        "text": str(path),
        "bytes": os.fsencode(path),
        "path": path,
        "another way": f"{path.parent}/../{path.parent.name}/{path.name}",
        "relative": os.path.relpath(path),
        "symbolic link": link,
        "hard link": hard,
        "uri": f"file:{path}?mode=ro",
        "uri with authority": f"file://localhost{path}",
        "uri without authority": f"file://{path}",
        "escaped uri": f"file:{str(path).replace('ledger', '%6cedger')}",
    }


@pytest.mark.parametrize("kind", ["text", "bytes", "path", "another way", "relative", "symbolic link", "hard link"])
async def test_every_name_of_a_live_ledger_is_refused(path: Path, kind: str) -> None:
    store = open_sqlite(path)
    name = _names(path)[kind]
    with pytest.raises(UsageError, match=r"a ledger which this process has open.*client\.connection\(\)"):
        sqlite3.connect(name)  # type: ignore[arg-type]
    await store.close()


@pytest.mark.parametrize("kind", ["uri", "uri with authority", "uri without authority", "escaped uri"])
async def test_every_uri_of_a_live_ledger_is_refused(path: Path, kind: str) -> None:
    store = open_sqlite(path)
    with pytest.raises(UsageError, match="is refused"):
        sqlite3.connect(str(_names(path)[kind]), uri=True)
    await store.close()


async def test_other_files_are_nobodys_concern(path: Path) -> None:
    store = open_sqlite(path)
    for other in (":memory:", "", str(path.with_name("other.db")), "file::memory:?cache=shared"):
        sqlite3.connect(other, uri=other.startswith("file:")).close()
    await store.close()


async def test_a_ledger_that_is_closed_may_be_opened_and_only_then(path: Path) -> None:
    one, two = open_sqlite(path), open_sqlite(path)
    await one.close()
    with pytest.raises(UsageError, match="is refused"):
        sqlite3.connect(path)
    await two.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM pledger_run").fetchall() == [(0,)]


def test_a_file_that_is_no_ledger_after_all_is_free(path: Path) -> None:
    path.write_text("no database " * 100)
    with pytest.raises(Exception, match="is not a SQLite database"):
        open_sqlite(path)
    sqlite3.connect(path).close()


async def test_another_process_may_open_a_live_ledger(path: Path) -> None:
    store = open_sqlite(path)
    code = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT 1').fetchall())"
    command = [sys.executable, "-c", code, str(path)]
    ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    assert ended.stdout == "[(1,)]\n"
    await store.close()
