"""Log lines of workflow code."""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

from pledger.machine.context import current


class ReplayAwareLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds who the run is to every record, and is silent on replay: what happened once is said once."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the standard library's name
        context = current()
        if context is not None and (context.replaying or context.dead):
            return False
        return super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        context = current()
        if context is not None:
            who = context.identity
            extra: Mapping[str, Any] = kwargs.get("extra") or {}
            ours = {"workflow_id": who.workflow_id, "run_id": who.run_id, "workflow_type": who.workflow_type}
            kwargs["extra"] = {**extra, **ours}
        return msg, kwargs
