"""Finding the user's code: `module` or `module:attribute` becomes the workflows and activities to run."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from pledger import errors
from pledger.history import tracebacks
from pledger.machine.definitions import ActivityDefinition, WorkflowDefinition


class CodeError(errors.UsageError):
    """The code that the command line names is not there, or cannot be imported."""


class Code:
    """What a target of the command line defines. By name: workflows and activities as `Worker` takes them."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.workflows: dict[str, Any] = {}
        self.activities: dict[str, ActivityDefinition[Any, Any]] = {}

    def take(self, value: Any) -> bool:
        """Whether the value is a workflow or an activity, which then is in the code. Raises CodeError for a second one
        of the same name."""
        known: dict[str, Any] = self.workflows
        if isinstance(value, ActivityDefinition):
            known, name = self.activities, value.name
        elif isinstance(value, type | FunctionType):
            try:
                name = WorkflowDefinition.of(value).name
            except errors.UsageError:
                return False
        else:
            return False
        if known.setdefault(name, value) is not value:
            raise CodeError(
                f"{self.target} has two definitions of {name!r}: {known[name]!r} and {value!r}. Give one another name"
            )
        return True

    def take_found(self, values: Iterable[Any]) -> None:
        """What of the values is a definition; the rest is none of our business."""
        for value in values:
            self.take(value)

    def take_listed(self, values: Iterable[Any]) -> None:
        """All the values; each has to be a definition."""
        for value in values:
            if not self.take(value):
                raise CodeError(f"{self.target} lists {value!r}, which is neither a workflow nor an activity")


def load_code(target: str) -> Code:
    """The definitions behind `module` (all that it defines or imports) or `module:attribute` (what that object lists).

    The attribute may be one workflow or activity, a collection of them, a module, or any object with `workflows` or
    `activities`. The working directory is searched first, as `python -m` does. Raises CodeError.
    """
    name, colon, attribute = target.partition(":")
    if not name or (colon and not attribute):
        raise CodeError(f"{target!r} names no code; write module or module:attribute, like orders.workflows")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    found = _import(name)
    for part in attribute.split(".") if attribute else ():
        try:
            found = getattr(found, part)
        except AttributeError:
            message = f"module {name} has no {attribute!r}; without `:{attribute}`, all it defines is taken"
            raise CodeError(message) from None
    code = Code(target)
    _take_object(code, found)
    if not code.workflows and not code.activities:
        raise CodeError(
            f"{target} has no workflows and no activities. Decorate them with @workflow.defn and @activity.defn, or "
            "name the module that defines or imports them"
        )
    return code


def _take_object(code: Code, found: Any) -> None:
    if isinstance(found, ModuleType):
        code.take_found(list(vars(found).values()))
    elif code.take(found):
        pass
    elif hasattr(found, "workflows") or hasattr(found, "activities"):
        code.take_listed([*getattr(found, "workflows", ()), *getattr(found, "activities", ())])
    elif isinstance(found, Iterable) and not isinstance(found, str | bytes):
        code.take_listed(found)
    else:
        raise CodeError(
            f"{code.target} is {found!r}: neither a workflow nor an activity, nor something that lists them (a list, "
            "or an object with workflows and activities)"
        )


def _import(name: str) -> Any:
    if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
        module = name.removesuffix(".py").strip("./").replace("/", ".")
        raise CodeError(f"{name!r} is no module; name the module, not its file: {module}")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise CodeError(_import_failure(name, error)) from error
        where = f"in {Path.cwd()} or among what is installed"
        raise CodeError(f"there is no module {error.name!r} {where}") from None
    except (Exception, SystemExit) as error:
        raise CodeError(_import_failure(name, error)) from error


def _import_failure(name: str, error: BaseException) -> str:
    """With the frames of the user's own code: that is where it is to be mended."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith("<frozen") and each.filename != importlib.__file__]
    text = tracebacks.lines_of(own).rstrip()
    return f"{name} cannot be imported: {type(error).__name__}: {error}" + (f"\n{text}" if text else "")
