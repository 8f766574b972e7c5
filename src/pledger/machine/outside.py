"""Clients are outside of workflow code: what they write stands at once, and would be written again by every replay."""

from __future__ import annotations

import asyncio

from pledger.machine.callers import public_call
from pledger.machine.loop import WorkflowLoop


def refuse_in_workflow_code() -> None:
    """Raise ForbiddenCallError for a call of the library that workflow code makes; the run is blocked by it, also where
    its code swallows the error. Return outside of workflow code."""
    loop = asyncio._get_running_loop()  # noqa: SLF001 - as in `context.current`
    if type(loop) is WorkflowLoop:
        loop.refuse(f"{public_call()}()")
