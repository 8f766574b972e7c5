"""Every crash point of a case: killed before and after each commit, and at a commit of the recovery too.

Each life is a child that is forked from this process, which has everything imported and never opens a ledger: a child
inherits no connection. It begins by looking at what the life before it has left, and ends by looking at what it leaves.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.crashes import apart, diary
from tests.crashes.cases import Crash
from tests.crashes.life import LEDGER, Fate, live
from tests.crashes.remains import Remains

#: Where a child says why it failed.
TOLD: Final = "told"
PHASES: Final = ("before", "after")


class CrashFailedError(AssertionError):
    """What is wrong after some kills, and how to see it again."""


@dataclass
class Figures:
    """kills: SIGKILLs, of them second: in a recovery. points: the crash points of first lives. lives: processes."""

    kills: int = 0
    second: int = 0
    points: int = 0
    lives: int = 0
    longest: int = 0
    cases: dict[str, int] = field(default_factory=dict)


def sweep(
    crash: Crash, folder: Path, figures: Figures, *, seed: int = 0, second: float = 1.0, by_turns: bool = False
) -> None:
    """Kill at each commit of the case, as they come, until a life is not hit any more.

    second: the share of the crash points whose recovery is killed too, at a commit drawn from the seed.
    by_turns: before one commit and after the next, where each would be killed before and after.
    Raises CrashFailedError; the folder of what went wrong is left.
    """
    before = figures.kills
    for commit in itertools.count(1):
        for phase in PHASES[commit % 2 :][:1] if by_turns else PHASES:
            trial = _Trial(crash, folder / f"{phase}-{commit}", figures, seed)
            if not trial.run(Fate(phase, commit), second):
                assert commit > 1, f"{crash.name} commits nothing"
                figures.longest = max(figures.longest, commit - 1)
                figures.cases[crash.name] = figures.cases.get(crash.name, 0) + figures.kills - before
                return
            figures.points += 1


class _Trial:
    """One crash point of first lives, and mostly a second one."""

    def __init__(self, crash: Crash, folder: Path, figures: Figures, seed: int) -> None:
        self._crash = crash
        self._folder = folder
        self._figures = figures
        self._seed = seed

    def run(self, fate: Fate, second: float) -> bool:
        """Whether there is such a point."""
        dice = random.Random(f"{self._seed} {self._crash.name} {fate}")
        first, again = self._folder / "first", self._folder / "second"
        first.mkdir(parents=True)
        is_point = self._live(first, fate)
        if is_point:
            if dice.random() < second:
                shutil.copytree(first, again)
            self._live(first, fate, Fate())
        if again.exists():
            commits = list(diary.of_kind(diary.read(first), "ended"))[-1][1]
            fates = fate, Fate(dice.choice(PHASES), dice.randint(1, commits))
            if self._live(again, *fates):
                self._figures.second += 1
                self._live(again, *fates, Fate())
        shutil.rmtree(self._folder)
        return is_point

    def _live(self, folder: Path, *fates: Fate) -> bool:
        """One life more; whether it was killed. fates: of the lives so far, and of this one."""
        self._figures.lives += 1
        os.environ[apart.FOLDER] = str(folder)

        def act() -> None:
            if len(fates) > 1:
                self._look(folder, ended=False)
            live(self._crash, folder, fates[-1], f"{self._seed} {self._crash.name} {fates}")
            self._look(folder, ended=True)

        how = _in_child(folder, act)
        killed = os.WIFSIGNALED(how) and os.WTERMSIG(how) == signal.SIGKILL
        self._figures.kills += killed
        if how and not killed:
            raise self._failed(folder, fates, how)
        return killed

    def _look(self, folder: Path, *, ended: bool) -> None:
        """At what lives have left. On a copy: the next one is to find the files as the kill left them. Without the
        index of the log, which belonged to who has died, and is made anew."""
        copy = folder.with_name(f"{folder.name}-copy")
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(f"{LEDGER}-shm"))
        remains = Remains(self._crash, copy)
        remains.check()
        if ended:
            remains.check_ending()
        if remains.violations:
            raise AssertionError("\n".join(remains.violations))
        shutil.rmtree(copy)

    def _failed(self, folder: Path, fates: tuple[Fate, ...], how: int) -> CrashFailedError:
        where = ", then ".join(f"{each.phase} commit {each.commit}" for each in fates if each.commit)
        return CrashFailedError(
            f"{self._crash.name}, killed {where} (seed {self._seed}; its files: {folder}): wait status {how}\n"
            f"{_told(folder)}\nAgain: python -m tests.crashes {self._crash.name} --seed {self._seed}\n"
        )


def _in_child(folder: Path, act: Callable[[], None]) -> int:
    """Do it in a child of this process; its wait status."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException:  # noqa: BLE001 - the parent tells what it was
            (folder / TOLD).write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(status)
    _, how = os.waitpid(child, 0)
    return how


def _told(folder: Path) -> str:
    path = folder / TOLD
    violated = "\n".join(told for [told] in diary.of_kind(diary.read(folder), "violated"))
    return f"{path.read_text('utf-8') if path.exists() else ''}\n{violated}"
