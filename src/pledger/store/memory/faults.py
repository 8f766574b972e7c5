"""Where a simulation gets its fingers in."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol


class Faults(Protocol):
    """Called around every verb of one handle; the commit point lies between `before` and `after`.

    verb: the name of the port's method, "commit" included. detail: its positional arguments.

    A hook may delay by returning an awaitable, fail the verb by raising (StoreUnavailableError is what a database
    would give), or `kill` the handle. Raising in `after` loses the reply of a change that was made, which is more than
    a well-behaved store does and exactly what a cut connection does. The blocking `renew_session` cannot wait: there
    an awaitable is not awaited.
    """

    def before(self, verb: str, detail: tuple[object, ...]) -> Awaitable[None] | None: ...

    def after(self, verb: str, detail: tuple[object, ...]) -> Awaitable[None] | None: ...
