"""An activity in a process of its own: it outlives a worker that is killed, and may act after that."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from pledger import activity, workflow
from pledger.engine.attempt import running
from tests.crashes.diary import Diary
from tests.reference.activities import QUICK, step

#: Names the folder of the case to the process.
FOLDER: Final = "PLEDGER_CRASH_FOLDER"
PREFIX: Final = "effect "


@activity.defn(executor="process", retry_policy=QUICK)
def apart(name: str) -> str:
    """Its effect is a file: made once, whoever comes first, and nothing that a kill leaves half done."""
    attempt, folder = running.get(), Path(os.environ[FOLDER])
    diary, place = Diary(folder), (attempt.identity.run_id, attempt.event_id)
    diary.write("began", *place, "apart", 0, activity.info().idempotency_key, attempt.number, "a process")
    with contextlib.suppress(FileExistsError):
        os.close(os.open(folder / f"{PREFIX}{name}", os.O_CREAT | os.O_EXCL, 0o600))
    diary.write("returned", *place, attempt.number, name)
    return name


@workflow.defn
async def set_apart(name: str) -> list[str]:
    return [await step("before"), await apart(name), await step("after")]
