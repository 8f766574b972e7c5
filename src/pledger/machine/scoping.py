"""Which scope the running code is in: `scopes` sets it, the context of the run reads it where there is one."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pledger.machine.scopes import Scope

#: The innermost scope. Tasks inherit it from the code that spawns them.
current_scope: ContextVar[Scope | None] = ContextVar("pledger_scope", default=None)
