"""Handlers of a run: methods that its class has for signals, queries and updates, and functions that its code sets.

A handler has the name of what it takes, or is *dynamic* and takes whatever no other handler of its kind does. What the
code sets as it goes goes before what is in the class.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from types import CodeType, MethodType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from pledger.errors import UsageError
from pledger.history.names import check_id
from pledger.history.payloads import Signature

if TYPE_CHECKING:
    from pledger.machine.machine import Machine

Kind: TypeAlias = Literal["signal", "query", "update"]

KINDS: Final[tuple[Kind, ...]] = ("signal", "query", "update")
HANDLER: Final = "__pledger_handler__"
_VALIDATOR: Final = "__pledger_validator__"
#: What a dynamic handler is given: the name, and all arguments.
_DYNAMIC_PARAMETERS: Final = 2


class HandlerUnfinishedPolicy(Enum):
    """What becomes of an async handler that is at work when its run ends. It is dropped either way; the log warns, or
    it does not."""

    WARN_AND_ABANDON = 1
    ABANDON = 2


class Mark(NamedTuple):
    """What a decorated method is to its class. name: None where it is dynamic."""

    kind: Literal["run"] | Kind
    name: str | None
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Handler:
    """name: None of a dynamic one. attribute: the method's name, or that of the function `fn`. signature: without self.
    validator: of an update, or None; it takes what the handler takes."""

    name: str | None
    attribute: str
    signature: Signature
    is_async: bool = False
    fn: Callable[..., Any] | None = None
    validator: Callable[..., Any] | None = None
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON
    description: str | None = None

    def bound(self, instance: object) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(instance, self.attribute) if self.fn is None else self.fn
        return found

    def call(self, instance: object, name: str, args: bytes) -> functools.partial[Any]:
        """A call of it. name, args: what was sent. Raises PayloadError where they do not fit."""
        return self._partial(self.bound(instance), name, args)

    def check(
        self, instance: object, name: str, args: bytes, default: Callable[..., None] | None = None
    ) -> functools.partial[Any] | None:
        """A call of its validator, or of `default` where it has none. Raises PayloadError where they do not fit."""
        validator = self.validator
        if validator is None:
            if default is not None:
                return self._partial(default, name, args)
            self._arguments(name, args)
            return None
        return self._partial(validator if self.fn is not None else MethodType(validator, instance), name, args)

    def _partial(self, bound: Callable[..., Any], name: str, args: bytes) -> functools.partial[Any]:
        positional, keywords = self._arguments(name, args)
        return functools.partial(bound, *positional, **keywords)

    def _arguments(self, name: str, args: bytes) -> tuple[list[Any], dict[str, Any]]:
        if self.name is None:
            args = b"[%s,%s]" % (msgspec.json.encode(name), args)
        return self.signature.split(self.signature.decode_args(args))


@dataclass(frozen=True, slots=True)
class Handlers:
    """Those of one workflow class. named: by kind, then by name. dynamic: by kind. sets_more: its code sets handlers as
    it goes, so that nobody can tell from outside which names it takes."""

    named: dict[Kind, dict[str, Handler]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    dynamic: dict[Kind, Handler] = field(default_factory=dict)
    sets_more: bool = False

    def find(self, kind: Kind, name: str) -> Handler | None:
        return self.named[kind].get(name) or self.dynamic.get(kind)

    def may_take(self, kind: Kind, name: str) -> bool:
        return self.sets_more or self.find(kind, name) is not None


def mark(
    fn: Callable[..., Any],
    kind: Literal["run"] | Kind,
    name: str | None,
    *,
    dynamic: bool = False,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
    description: str | None = None,
) -> None:
    """Note on a method what it is to its class; `collect` takes the notes. Raises UsageError."""
    if dynamic and name is not None:
        raise UsageError(f"{fn.__qualname__!r} is a dynamic {kind}, which takes every name, and cannot have {name!r}")
    known = None if dynamic else check_id(name or fn.__name__, f"the name of a {kind}")
    setattr(fn, HANDLER, Mark(kind, known, unfinished_policy, description))


def mark_validator(update: Callable[..., Any], validator: Callable[..., Any]) -> None:
    """Note on an update who lets its arguments through. Raises UsageError."""
    _check_validator(update, validator)
    setattr(update, _VALIDATOR, validator)


def mark_of(fn: object) -> Mark | None:
    found = getattr(fn, HANDLER, None)
    return found if isinstance(found, Mark) else None


def handler_name(fn: object, kind: Kind) -> str | None:
    """The name under which a decorated method is known as a `kind`, or None when it is no such thing."""
    found = mark_of(fn)
    return found.name if found is not None and found.kind == kind else None


def collect(cls: type, workflow: str) -> tuple[list[str], Handlers]:
    """(the run methods, the handlers) of a workflow class and its bases. Raises UsageError."""
    runs: list[str] = []
    handlers = Handlers(sets_more=sets_handlers(each for each in vars(cls).values()))
    for attribute, fn, found in _methods(cls):
        if found.kind == "run":
            runs.append(attribute)
            continue
        handler = _handler(fn, found, workflow, attribute)
        if found.name is None:
            _add_dynamic(handlers, found.kind, handler, workflow)
            continue
        known = handlers.named[found.kind]
        if found.name in known and known[found.name].attribute != attribute:
            raise UsageError(f"workflow {workflow!r} has two handlers for the {found.kind} {found.name!r}")
        known[found.name] = handler
    return runs, handlers


def _handler(fn: Any, found: Mark, workflow: str, attribute: str) -> Handler:
    kind, named = found.kind, f"the {found.kind} {found.name!r}"
    if found.name is None:
        named = f"the dynamic {kind} {attribute!r}"
        _check_dynamic(fn, f"workflow {workflow!r}: {named}", skip_self=True)
    is_async = inspect.iscoroutinefunction(fn)
    if is_async and kind == "query":
        raise UsageError(f"workflow {workflow!r}: {named} must be a plain method: it may not wait")
    return Handler(
        found.name,
        attribute,
        Signature.of(fn, skip_self=True),
        is_async,
        None,
        getattr(fn, _VALIDATOR, None),
        found.unfinished_policy,
        found.description or inspect.getdoc(fn),
    )


def _add_dynamic(handlers: Handlers, kind: Any, handler: Handler, workflow: str) -> None:
    known = handlers.dynamic.get(kind)
    if known is not None and known.attribute != handler.attribute:
        raise UsageError(
            f"workflow {workflow!r} has two dynamic handlers of {kind} messages: {known.attribute}, {handler.attribute}"
        )
    handlers.dynamic[kind] = handler


def _methods(cls: type) -> Iterable[tuple[str, Any, Mark]]:
    """The decorated methods of a class and its bases, the most derived of each name."""
    for attribute in dir(cls):
        fn = getattr(cls, attribute, None)
        if (found := mark_of(fn)) is not None:
            yield attribute, fn, found


def set_later(
    kind: Kind,
    name: str | None,
    fn: Callable[..., Any],
    *,
    validator: Callable[..., Any] | None = None,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
    description: str | None = None,
) -> Handler:
    """The handler that a function is which the code of a run sets. Raises UsageError."""
    what = f"the dynamic {kind} handler" if name is None else f"the handler of the {kind} {name!r}"
    if not callable(fn):
        raise UsageError(f"{what} is {fn!r}, which cannot be called")
    is_async = inspect.iscoroutinefunction(fn)
    if is_async and kind == "query":
        raise UsageError(f"{what} must be a plain function: it may not wait")
    if name is None:
        _check_dynamic(fn, what, skip_self=False)
    if validator is not None:
        _check_validator(fn, validator)
    called = getattr(fn, "__name__", what)
    return Handler(name, called, Signature.of(fn), is_async, fn, validator, unfinished_policy, description)


def _check_dynamic(fn: Callable[..., Any], what: str, *, skip_self: bool) -> None:
    parameters = [*inspect.signature(fn).parameters.values()][int(skip_self) :]
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != _DYNAMIC_PARAMETERS or any(each.kind not in plain for each in parameters):
        raise UsageError(f"{what} must take the name and a sequence of all arguments: (name: str, args: Sequence[Any])")


def _check_validator(update: Callable[..., Any], validator: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(validator):
        raise UsageError(
            f"the validator {validator.__qualname__!r} must be plain: it may not wait, only read and raise"
        )
    takes = [[*inspect.signature(each).parameters] for each in (update, validator)]
    if len(takes[0]) != len(takes[1]):
        raise UsageError(
            f"the validator {validator.__qualname__!r} must take what its update takes: ({', '.join(takes[0])}), and "
            f"takes ({', '.join(takes[1])})"
        )


# In a run -------------------------------------------------------------------------------------------------------------


def find(machine: Machine, kind: Kind, name: str) -> Handler | None:
    """Who takes what is called so, or None."""
    context = machine.context
    if context.own_handlers is None:
        return machine.definition.handlers.find(kind, name)
    return context.handler(kind, name) or context.handler(kind, None)


def names(machine: Machine, kind: Kind) -> str:
    """Those that the run takes by name now, in words."""
    found = set(machine.definition.handlers.named[kind])
    for (of, name), handler in (machine.context.own_handlers or {}).items():
        if of == kind and name is not None:
            found = found | {name} if handler is not None else found - {name}
    return ", ".join(sorted(found)) or "none"


#: The functions of the workflow module that set handlers.
SETTERS: Final = frozenset(f"set_{dynamic}{kind}_handler" for kind in KINDS for dynamic in ("", "dynamic_"))


def sets_handlers(functions: Iterable[object]) -> bool:
    """Whether the code of some of these names a function that sets handlers, as far as one can tell by reading it."""
    return any(_names_setter(fn.__code__) for fn in map(inspect.unwrap, _plain(functions)))


def _plain(functions: Iterable[object]) -> Iterable[Any]:
    return (fn for fn in functions if inspect.isfunction(fn))


def _names_setter(code: CodeType) -> bool:
    if not SETTERS.isdisjoint(code.co_names):
        return True
    return any(_names_setter(each) for each in code.co_consts if isinstance(each, CodeType))
