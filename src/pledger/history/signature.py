"""A function's parameters and result, as codecs: how a call becomes a JSON array and an array becomes a call."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Final

from pledger.errors import UsageError
from pledger.history.codecs.codec import Codec, described
from pledger.history.codecs.hints import codec_of
from pledger.history.codecs.json_tree import Misfit, dumps, loads
from pledger.history.codecs.scalars import NULL
from pledger.history.codecs.unions import union_of

_EMPTY: Final = inspect.Parameter.empty
_VAR_POSITIONAL: Final = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD: Final = inspect.Parameter.VAR_KEYWORD
_KEYWORD_ONLY: Final = inspect.Parameter.KEYWORD_ONLY


class Signature:
    """The codecs of one workflow, activity, signal, query or update function.

    Arguments are a JSON array in the order of the parameters; keyword arguments are bound to their positions. A gap
    before a given argument is filled with the parameter's default. Trailing defaults are left out: a default that
    changes later then applies to whoever never stated it. Keyword-only parameters follow the positional ones, in the
    order of their declaration; `split` takes them apart again. `**kwargs`, and `*args` together with keyword-only
    parameters, have no place in that order and are refused.

    name: the function's, for messages. keyword_only: the names of such parameters.
    """

    @classmethod
    def of(cls, fn: Callable[..., Any], *, skip_self: bool = False) -> Signature:
        """The signature of a function, built once. skip_self: its first parameter is the instance, not an argument.

        Follows functools.wraps to the wrapped function. The result of a plain `def` that is annotated as Awaitable[T]
        or Coroutine[..., T] is T. Raises UsageError, naming function and parameter, when an annotation cannot be
        resolved or its values cannot be kept, or when the parameters have no order as above.
        """
        return _signature_of(fn, skip_self=skip_self)

    def __init__(self, fn: Callable[..., Any], *, skip_self: bool) -> None:
        self.name: str = getattr(fn, "__qualname__", type(fn).__qualname__)
        inspected = _inspected(fn, self.name, skip_self=skip_self)
        parameters = tuple(inspected.parameters.values())
        codecs = [_parameter_codec(fn, self.name, parameter) for parameter in parameters]
        self._inspected = inspected
        self._parameters = parameters
        self._variadic = codecs.pop() if any(p.kind is _VAR_POSITIONAL for p in parameters) else None
        self._codecs = tuple(codecs)
        self._result = _result_codec(fn, self.name, inspected.return_annotation)
        self.keyword_only = tuple(p.name for p in parameters if p.kind is _KEYWORD_ONLY)
        required = [i for i, p in enumerate(parameters) if p.default is _EMPTY and p.kind is not _VAR_POSITIONAL]
        self._count_min = required[-1] + 1 if required else 0

    def encode_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The JSON array of one call. Raises TypeError like the call itself, and PayloadError for a value."""
        codecs = self._codecs
        try:
            if len(args) == 1 == len(codecs) and not kwargs:
                # Written out for the commonest call: this is on the path of every step.
                value, codec = args[0], codecs[0]
                if type(value) in codec.passes:
                    return dumps(args)
            elif kwargs or self.keyword_only or not self._count_min <= len(args) <= len(codecs):
                args = self._bind(args, kwargs)
            return dumps(self._encode_each(args))
        except Misfit as misfit:
            raise misfit.error(f"{self._argument(misfit)} cannot be kept") from misfit.__cause__

    def decode_args(self, data: bytes) -> list[Any]:
        """The arguments of a JSON array, for `fn(*arguments)`, or for `split` where there are keyword-only parameters.

        Arguments that have a default may be missing at the end. Raises PayloadError.
        """
        try:
            tree = loads(data)
            codecs = self._codecs
            if type(tree) is list and len(tree) == 1 == len(codecs) and type(tree[0]) in codecs[0].reads:
                return tree
            return self._decode_each(tree)
        except Misfit as misfit:
            raise misfit.error(f"{self._argument(misfit)} cannot be read") from misfit.__cause__

    def split(self, arguments: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The positional and the keyword-only arguments among those that `decode_args` gave."""
        if not self.keyword_only:
            return arguments, {}
        count = len(self._codecs) - len(self.keyword_only)
        return [*arguments[:count]], dict(zip(self.keyword_only, arguments[count:], strict=False))

    def encode_result(self, value: Any) -> bytes:
        """The JSON of a result. Raises PayloadError."""
        codec = self._result
        try:
            return dumps(value if type(value) in codec.passes else codec.encode(value, 0))
        except Misfit as misfit:
            raise misfit.error(f"the result of {self.name}() cannot be kept") from misfit.__cause__

    def decode_result(self, data: bytes) -> Any:
        """The result of its JSON. Raises PayloadError."""
        codec = self._result
        try:
            tree = loads(data)
            return tree if type(tree) in codec.reads else codec.decode(tree)
        except Misfit as misfit:
            raise misfit.error(f"the result of {self.name}() cannot be read") from misfit.__cause__

    @property
    def parameters(self) -> str:
        """As a reader of the code sees them, without annotations: `(order, express=False)`."""
        bare = [each.replace(annotation=_EMPTY) for each in self._parameters]
        return str(self._inspected.replace(parameters=bare, return_annotation=_EMPTY))

    def refusal(self, args: tuple[Any, ...]) -> str | None:
        """Why a call with these arguments is none, or None where it is one."""
        try:
            self._inspected.bind(*args)
        except TypeError as error:
            return str(error)
        return None

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The values in the order of the parameters, up to the last one given."""
        try:
            given = self._inspected.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}() cannot be called so: {error}") from None
        values: list[Any] = []
        missing: list[Any] = []
        for parameter in self._parameters:
            if parameter.name not in given:
                missing.append(parameter.default)
                continue
            value = given[parameter.name]
            values += [*missing, *(value if parameter.kind is _VAR_POSITIONAL else (value,))]
            missing = []
        return tuple(values)

    def _encode_each(self, args: tuple[Any, ...]) -> list[object]:
        tree: list[object] = []
        try:
            for value, codec in zip(args, self._codecs_for(len(args)), strict=True):
                tree.append(value if type(value) in codec.passes else codec.encode(value, 1))
        except Misfit as misfit:
            misfit.under(len(tree))
            raise
        return tree

    def _decode_each(self, tree: object) -> list[Any]:
        if type(tree) is not list:
            raise Misfit(f"expected the array of arguments, found {described(tree)}. Send one, like [1, 2].")
        if len(tree) < self._count_min or (self._variadic is None and len(tree) > len(self._codecs)):
            raise Misfit(
                f"expected {self._expected_arguments()}, found {len(tree)}. "
                "Send those, or give new parameters a default."
            )
        values: list[Any] = []
        try:
            for item, codec in zip(tree, self._codecs_for(len(tree)), strict=True):
                values.append(item if type(item) in codec.reads else codec.decode(item))
        except Misfit as misfit:
            misfit.under(len(values))
            raise
        return values

    def _codecs_for(self, count: int) -> tuple[Codec, ...]:
        codecs = self._codecs
        if count == len(codecs):
            return codecs
        if count < len(codecs) or self._variadic is None:
            return codecs[:count]
        return codecs + (self._variadic,) * (count - len(codecs))

    def _argument(self, misfit: Misfit) -> str:
        """In words: which argument the misfit is in."""
        index = misfit.steps[-1] if misfit.steps else None
        if not isinstance(index, int):
            return f"the arguments of {self.name}()"
        return f"the argument {self._parameters[min(index, len(self._parameters) - 1)].name} of {self.name}()"

    def _expected_arguments(self) -> str:
        names = ", ".join(parameter.name for parameter in self._parameters)
        return f"the arguments ({names})" if names else "no arguments"


# Reading a function ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)  # functions are few; the bound is for those made in loops
def _signature_of(fn: Callable[..., Any], *, skip_self: bool) -> Signature:
    return Signature(fn, skip_self=skip_self)


def _inspected(fn: Callable[..., Any], name: str, *, skip_self: bool) -> inspect.Signature:
    try:
        inspected = inspect.signature(fn)
    except (ValueError, TypeError) as error:
        raise UsageError(f"the parameters of {name} cannot be read: {error}. Wrap it in a plain function.") from error
    parameters = [*inspected.parameters.values()]
    if skip_self:
        if not parameters:
            raise UsageError(f"{name}() takes no self. Make it a method, or a plain function outside of the class.")
        del parameters[0]
    kinds = {parameter.kind for parameter in parameters}
    if _VAR_KEYWORD in kinds:
        raise UsageError(
            f"{name}() takes **kwargs, which have no order in a payload. Name the parameters, or take one dict."
        )
    if {_VAR_POSITIONAL, _KEYWORD_ONLY} <= kinds:
        raise UsageError(
            f"{name}() takes *args before keyword-only parameters, which then have no fixed place. Take a list."
        )
    return inspected.replace(parameters=parameters)


def _parameter_codec(fn: Callable[..., Any], name: str, parameter: inspect.Parameter) -> Codec:
    codec = _codec(_resolved(fn, name, parameter.name, parameter.annotation), f"parameter {parameter.name} of {name}()")
    # `x: str = None` says `str | None` to its readers, and its default must be able to fill a gap.
    return union_of((codec, NULL)) if parameter.default is None else codec


def _result_codec(fn: Callable[..., Any], name: str, annotation: Any) -> Codec:
    hint = _resolved(fn, name, "return", annotation)
    is_awaitable = typing.get_origin(hint) in (collections.abc.Awaitable, collections.abc.Coroutine)
    if is_awaitable and not inspect.iscoroutinefunction(fn):
        hint = typing.get_args(hint)[-1]
    return _codec(hint, f"result of {name}()")


def _codec(hint: Any, what: str) -> Codec:
    try:
        return codec_of(hint)
    except Misfit as misfit:
        raise UsageError(f"{what}: {misfit.problem}") from misfit


def _resolved(fn: Callable[..., Any], name: str, part: str, annotation: Any) -> Any:
    """The annotation with the names in its strings resolved where the function is defined."""
    if annotation is _EMPTY:
        return Any
    holder = types.SimpleNamespace(__annotations__={part: annotation})
    try:
        return typing.get_type_hints(holder, globalns=_globals(fn), include_extras=True)[part]
    except Exception as error:
        what = "result" if part == "return" else f"parameter {part}"
        raise UsageError(
            f"the annotation {annotation!r} of the {what} of {name}() cannot be resolved "
            f"({type(error).__name__}: {error}). "
            "Define or import the name at module level, outside of `if TYPE_CHECKING`."
        ) from error


def _globals(fn: Callable[..., Any]) -> dict[str, Any]:
    target: Any = fn
    while isinstance(target, functools.partial):
        target = target.func
    target = inspect.unwrap(getattr(target, "__func__", target))
    return getattr(target, "__globals__", {})
