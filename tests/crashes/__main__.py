"""`python -m tests.crashes [CASE ...]`: the crash points of the cases (all by default), with the figures as JSON.

Run by the tests, by whoever wants to see a failure again, and for the record with many kills in the recovery.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.crashes.cases import CRASHES
from tests.crashes.life import prepare
from tests.crashes.planted import PLANTED
from tests.crashes.sweep import CrashFailedError, Figures, sweep

#: A kill loses nothing that was written, on whatever disk: so the files lie in memory where they can.
_MEMORY: Final = Path("/dev/shm")
PLACE: Final = _MEMORY if os.access(_MEMORY, os.W_OK) else None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CRASHES), help=", ".join(CRASHES))
    parser.add_argument("--seed", type=int, default=0, help="draws the kills of recoveries, and the time between lives")
    parser.add_argument("--second", type=float, default=1.0, help="share of the points whose recovery is killed too")
    parser.add_argument(
        "--by-turns", action="store_true", help="before one commit and after the next, not both of each"
    )
    parser.add_argument("--kills", type=int, default=0, help="go on, seed after seed, until so many are reached")
    parser.add_argument("--folder", type=Path, default=PLACE, help="for the ledgers; those of a failure stay there")
    parser.add_argument("--json", type=Path, help="the figures go to this file, too")
    parser.add_argument("--plant", choices=PLANTED, help="a bug that has to be found")
    asked = parser.parse_args()
    if asked.plant:
        PLANTED[asked.plant]()
    prepare()
    folder = Path(tempfile.mkdtemp(prefix="pledger-crashes-", dir=asked.folder))
    figures, began = Figures(), time.perf_counter()
    failed, seed = "", asked.seed
    try:
        while not figures.kills or figures.kills < asked.kills:
            for name in asked.cases:
                place = folder / f"{seed}-{name}"
                sweep(CRASHES[name], place, figures, seed=seed, second=asked.second, by_turns=asked.by_turns)
            seed += 1
        shutil.rmtree(folder)
    except CrashFailedError as error:
        failed = str(error)
    seconds = round(time.perf_counter() - began, 1)
    seeds = [asked.seed, max(asked.seed, seed - 1)]
    report = json.dumps({**dataclasses.asdict(figures), "seconds": seconds, "seeds": seeds, "failed": failed}, indent=1)
    if asked.json is not None:
        asked.json.write_text(report + "\n", encoding="utf-8")
    sys.stdout.write(report + "\n")
    sys.stderr.write(failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
