"""What the program's own signals raise in the midst of the engine: Ctrl-C, or sys.exit() in a handler for SIGTERM.

It comes wherever the thread happens to be, which is mostly none of its business: it ends the program, and neither the
run whose code was running nor the batch that was being written.
"""

from __future__ import annotations

import functools
import signal


def is_interrupt(error: BaseException) -> bool:
    """Whether a handler of a signal raised it, and not the code that was running."""
    if isinstance(error, KeyboardInterrupt):
        return True
    if not isinstance(error, SystemExit):
        return False
    handlers = {_code_of(signal.getsignal(each)) for each in signal.valid_signals()} - {None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: object) -> object:
    """None for what is no Python code, as SIG_DFL."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return getattr(handler, "__code__", None)
