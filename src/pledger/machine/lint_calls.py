"""The calls that `lint` reports, by their full names, and what to do instead.

The words are those of the guards: a finding and the error that the same call raises while the code runs agree.
"""

from __future__ import annotations

import ast
from typing import Final

from pledger.machine.rules import (
    CALENDAR,
    CHANCE,
    CLOCK,
    CLOCK_BY_DEFAULT,
    CLOCKS,
    EFFECT,
    ENTROPY,
    ID,
    OUTSIDE,
    SLEEP,
    THREAD,
    Rule,
)

SET_ORDER: Final = Rule("the order of a set differs on replay, and this acts in it", "iterate over sorted(...)")
CANCELLATION: Final = Rule(
    "it swallows the cancellation of the run", "catch Exception, or end the handler with a bare raise"
)
DROPPED: Final = Rule(
    "nobody awaits it, so that its failure goes unseen and the run may end before it does", "await it"
)
_FILE: Final = Rule(OUTSIDE, "read and write files in an activity")

#: Whole modules. The longest name that fits decides; None lets a part of one through.
_MODULES: Final[dict[str, Rule | None]] = {
    "random": CHANCE,
    "secrets": CHANCE,
    "secrets.compare_digest": None,
    **dict.fromkeys(("threading", "_thread", "multiprocessing", "concurrent.futures"), THREAD),
    **dict.fromkeys(("shutil", "tempfile"), _FILE),
    **dict.fromkeys(
        (  # noqa: SIM905 - as a list it is a page
            "subprocess socket http.client ftplib smtplib imaplib poplib urllib.request urllib3 requests httpx aiohttp "
            "webbrowser sqlite3 apsw asyncpg psycopg psycopg2"
        ).split(),
        EFFECT,
    ),
}

_FUNCTIONS: Final[dict[str, Rule]] = {
    "datetime.datetime.now": CALENDAR,
    "datetime.datetime.utcnow": CALENDAR,
    "datetime.datetime.today": CALENDAR,
    "datetime.date.today": CALENDAR,
    **dict.fromkeys((f"time.{name}" for name in (*CLOCKS, "clock_gettime", "clock_gettime_ns")), CLOCK),
    **dict.fromkeys((f"time.{name}" for name in CLOCK_BY_DEFAULT), CLOCK),
    "time.sleep": SLEEP,
    **dict.fromkeys((f"uuid.uuid{version}" for version in (1, 4, 6, 7)), ID),
    "os.urandom": ENTROPY,
    "os.getrandom": ENTROPY,
    "builtins.input": EFFECT,
    **dict.fromkeys(("builtins.open", "io.open", "codecs.open"), _FILE),
    **dict.fromkeys(
        (
            f"os.{name}"
            for name in (  # noqa: SIM905 - as above
                "open listdir scandir walk chdir chmod chown link symlink mkdir makedirs remove unlink rename renames "
                "replace rmdir removedirs stat truncate utime"
            ).split()
        ),
        _FILE,
    ),
    **dict.fromkeys(
        (
            f"os.{name}"
            for name in (  # noqa: SIM905 - as above
                "system popen fork forkpty posix_spawn posix_spawnp kill killpg putenv unsetenv execl execle execlp "
                "execlpe execv execve execvp execvpe spawnl spawnle spawnlp spawnlpe spawnv spawnve spawnvp spawnvpe"
            ).split()
        ),
        EFFECT,
    ),
    "asyncio.to_thread": THREAD,
    **dict.fromkeys(
        (
            f"asyncio.{name}"
            for name in (  # noqa: SIM905 - as above
                "create_subprocess_exec create_subprocess_shell open_connection open_unix_connection start_server "
                "start_unix_server"
            ).split()
        ),
        EFFECT,
    ),
}

#: Methods that no other kind of object is likely to have: an event loop's, and a `Path`'s.
_METHODS: Final[dict[str, Rule]] = {
    "run_in_executor": THREAD,
    **dict.fromkeys(("read_text", "read_bytes", "write_text", "write_bytes"), _FILE),
}


def rule_of(name: str, call: ast.Call) -> Rule | None:
    """Why this call of a function, known by its full name, is refused; None where it does no harm."""
    if _is_given_what_it_would_ask_for(name, call):
        return None
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    prefix = name
    while prefix:
        if prefix in _MODULES:
            return _MODULES[prefix]
        prefix = prefix.rpartition(".")[0]
    return None


def rule_of_method(name: str) -> Rule | None:
    """The same for a method of an object that nothing is known about."""
    return _METHODS.get(name)


def _is_given_what_it_would_ask_for(name: str, call: ast.Call) -> bool:
    """A seed, or a time: then chance and the clock are not asked."""
    if name == "random.Random":
        return bool(call.args or call.keywords)
    module, _, function = name.rpartition(".")
    return module == "time" and function in CLOCK_BY_DEFAULT and len(call.args) > CLOCK_BY_DEFAULT[function]
