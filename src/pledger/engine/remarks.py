"""What the log says of code that blocks nothing, and is hardly meant as it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pledger.history import failures, tracebacks
from pledger.machine.closing import fails_run

if TYPE_CHECKING:
    from pledger.machine.machine import Machine

logger = logging.getLogger("pledger.engine")


def tell(machine: Machine) -> None:
    """Once each, and of live activations alone: a replay has nothing new to say."""
    if machine.unfinished:
        kinds = " and ".join(f"{kind}s" for kind in sorted({each.kind for each in machine.unfinished}))
        names = ", ".join(repr(each.name) for each in machine.unfinished)
        logger.warning(
            "%s ended while handlers of %s were still at work: %s. What they had still to do is dropped. Wait for "
            "them before returning: await workflow.wait_condition(workflow.all_handlers_finished)",
            machine.identity,
            kinds,
            names,
        )
    if machine.unstarted:
        names = ", ".join(repr(name) for name in machine.unstarted)
        logger.warning(
            "%s returned without awaiting what it had just called: %s. A run that ends starts nothing any more, so "
            "none of it has run. Await each call",
            machine.identity,
            names,
        )
    unawaited, machine.unawaited = machine.unawaited, ()
    for task in unawaited:
        error = task.exception()
        if error is not None:
            # What can be expected to fail may well be awaited later; a bug is news, whoever awaits it.
            level = logging.INFO if fails_run(machine.definition, error) else logging.WARNING
            logger.log(
                level,
                "%s: its %s has raised %s: %s. Nobody has awaited it so far. Await it, start it in an "
                "asyncio.TaskGroup, or catch there what may happen",
                machine.identity,
                task.get_name(),
                type(error).__name__,
                failures.text_of(error),
                exc_info=tracebacks.for_log(error),
            )
