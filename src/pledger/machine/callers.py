"""Where in the user's code a call comes from, told by the stack."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType

# Not with pathlib: it would be a tenth of the time that the whole library takes to start.
_PACKAGE = __file__.rpartition("machine")[0]
_ASYNCIO = asyncio.__file__.removesuffix("__init__.py")
#: Classes that stand in a file of their own and are a part of another one, under whose name people know their verbs.
_PARTS = {"Completions": "Client"}


def caller_name(depth: int) -> str:
    """File and qualified name of the function `depth` frames above the caller: stable under edits elsewhere in it.

    The file and not the module: a module that is run as a script has another name than when it is imported.
    """
    code = sys._getframe(depth + 1).f_code  # noqa: SLF001 - the only way to know the caller without its help
    return f"{_file_name(code.co_filename)}:{code.co_qualname}"


def public_call() -> str:
    """What user code has called of this library, by its qualified name."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - see caller_name
    name = ""
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        name = frame.f_code.co_qualname
        frame = frame.f_back
    owner, _, verb = name.partition(".")
    return f"{_PARTS.get(owner, owner)}.{verb}" if verb else name


def _file_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def where() -> str | None:
    """File, line and function of the user code that is asking: the nearest frame that is neither ours nor asyncio's."""
    frame = sys._getframe(2)  # noqa: SLF001 - see caller_name
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith((_PACKAGE, _ASYNCIO)):
            return f"{_file_name(path)}:{frame.f_lineno}, in {frame.f_code.co_qualname}"
        frame = frame.f_back  # type: ignore[assignment] # None ends the walk
    return None
