"""Tracebacks as the author of workflows and activities reads them: without the frames of Pledger itself.

What is left is the author's own code and the libraries it calls: that is where a bug is to be mended. Filtered where a
traceback is recorded, since whoever reads it later may have Pledger in another place.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Final

from pledger import errors

_PACKAGE: Final = errors.__file__.removesuffix("errors.py")


def is_ours(filename: str) -> bool:
    """Whether the file belongs to Pledger."""
    return filename.startswith(_PACKAGE)


def text_of(error: BaseException, *, chain: bool = True) -> str:
    """The traceback of the error as text. chain: with those of its causes.

    Where no frame is the author's: "" for an error of Pledger's own, whose message says it all; the whole for any other
    one, since it may be a bug of ours. Where the error's own code stands in the way, so much as can be told without it.
    """
    try:
        return _text_of(error, chain=chain)
    except Exception:  # noqa: BLE001 - notes of its own making, groups without end: it must be told all the same
        frames = traceback.extract_tb(error.__traceback__)
        return f"Traceback (most recent call last):\n{lines_of(frames)}{type(error).__name__}\n"


def _text_of(error: BaseException, *, chain: bool) -> str:
    found = traceback.TracebackException.from_exception(error, compact=True)
    if not any([_keep_own(each) for each in _all(found)]):  # noqa: C419 - every one is to be filtered
        return "" if isinstance(error, errors.PledgerError) else "".join(traceback.format_exception(error, chain=chain))
    return "".join(found.format(chain=chain))


def lines_of(frames: Iterable[traceback.FrameSummary]) -> str:
    """Frames as a traceback shows them."""
    return "".join(traceback.format_list([each for each in frames if not is_ours(each.filename)]))


def running(frame: FrameType) -> str:
    """What the author's code is doing in a stack that ends with `frame`, below the engine that called it."""
    frames = traceback.extract_stack(frame)
    called = next((n for n, each in enumerate(frames) if is_ours(each.filename)), 0)
    return lines_of(frames[called:]) or "".join(traceback.format_list(frames))


def for_log(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None] | None:
    """The error as a log record takes it (exc_info), the whole where no frame is the author's; None for one whose own
    code stands in the way: a log that fails over it would end what logs."""
    try:
        traceback.TracebackException.from_exception(error, compact=True)
    except Exception:  # noqa: BLE001 - as in text_of
        return None
    return type(error), error, _own(error.__traceback__) or error.__traceback__


def _own(trace: TracebackType | None) -> TracebackType | None:
    kept = []
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            kept.append(trace)
        trace = trace.tb_next
    own: TracebackType | None = None
    for each in reversed(kept):
        own = TracebackType(own, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return own


def _keep_own(found: traceback.TracebackException) -> bool:
    """Whether there is a frame of the author's; others are dropped."""
    found.stack[:] = [each for each in found.stack if not is_ours(each.filename)]
    return bool(found.stack)


def _all(found: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """The error, its causes, and the members of groups."""
    waiting: list[traceback.TracebackException | None] = [found]
    seen = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__, *(each.exceptions or ())]
