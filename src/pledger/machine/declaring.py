"""The decorators of a workflow class's handlers. A part of `pledger.workflow`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from pledger.machine.handlers import HandlerUnfinishedPolicy, Kind, mark, mark_validator

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@overload
def signal(fn: F, /) -> F: ...
@overload
def signal(
    *,
    name: str | None = None,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
    description: str | None = None,
) -> Callable[[F], F]: ...
def signal(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
    description: str | None = None,
) -> Any:
    """A method that takes a message. Plain, or async: then it runs beside the run method, which should wait for
    `all_handlers_finished` before it returns.

    dynamic: it takes every signal that no other handler does, as (name: str, args: Sequence[Any]).
    unfinished_policy: whether the log warns when the run ends before the handler does. description: for people; the
    docstring by default.
    """
    return _decorator(fn, "signal", name, dynamic, unfinished_policy, description)


@overload
def query(fn: F, /) -> F: ...
@overload
def query(*, name: str | None = None, dynamic: bool = False, description: str | None = None) -> Callable[[F], F]: ...
def query(fn: Any = None, /, *, name: str | None = None, dynamic: bool = False, description: str | None = None) -> Any:
    """A plain method that answers from the present state. It may not act, wait or draw.

    dynamic: it answers every query that no other handler does, as (name: str, args: Sequence[Any]).
    """
    return _decorator(fn, "query", name, dynamic, HandlerUnfinishedPolicy.WARN_AND_ABANDON, description)


class UpdateMethod(Generic[S, P, R_co]):
    """What `update` makes of a method: for type checkers alone, at run time it is the method itself."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, R_co]: ...
    def __get__(self, instance: object, owner: type) -> Any:
        raise NotImplementedError

    def __call__(self, instance: S, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        raise NotImplementedError

    def validator(self, fn: Callable[Concatenate[S, P], None], /) -> Callable[Concatenate[S, P], None]:
        """Who lets its arguments through: a plain method that takes the same, and raises for what is not to be taken.
        It may only read. What it refuses leaves nothing in the history."""
        raise NotImplementedError


@overload
def update(fn: Callable[Concatenate[S, P], R_co], /) -> UpdateMethod[S, P, R_co]: ...
@overload
def update(
    *,
    name: str | None = None,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
    description: str | None = None,
) -> Callable[[Callable[Concatenate[S, P], R_co]], UpdateMethod[S, P, R_co]]: ...
def update(
    fn: Any = None,
    /,
    *,
    name: str | None = None,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
    description: str | None = None,
) -> Any:
    """A method that takes a message and answers it. Plain, or async: then it runs beside the run method, which should
    wait for `all_handlers_finished` before it returns.

    `@name.validator`, on another method, says who lets it through. A declared failure that the method raises is told to
    whoever has sent the update, and the run goes on; any other exception is a bug and blocks it. Its options are
    those of `signal`.
    """
    return _decorator(fn, "update", name, dynamic, unfinished_policy, description)


def _decorator(
    fn: Any,
    kind: Kind,
    name: str | None,
    dynamic: bool,  # noqa: FBT001 - as the decorators have it
    unfinished_policy: HandlerUnfinishedPolicy,
    description: str | None,
) -> Any:
    def decorate(found: Any) -> Any:
        mark(found, kind, name, dynamic=dynamic, unfinished_policy=unfinished_policy, description=description)
        if kind == "update":
            found.validator = partial(_validated_by, found)
        return found

    return decorate if fn is None else decorate(fn)


def _validated_by(updated: Any, validator: F) -> F:
    mark_validator(updated, validator)
    return validator
