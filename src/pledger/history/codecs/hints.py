"""From an annotation to its codec, built once per annotation."""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections import abc
from typing import Annotated, Any, Final, ForwardRef, Literal, Never, NewType, NoReturn, NotRequired, Required, TypeVar

from pledger.history.codecs.codec import Codec, NoneType
from pledger.history.codecs.containers import ArrayCodec, DictCodec, TupleCodec
from pledger.history.codecs.json_tree import Misfit
from pledger.history.codecs.models import ModelCodec, is_model
from pledger.history.codecs.records import record_codec
from pledger.history.codecs.scalars import BOOL, FLOAT, INT, NULL, STR, TEXTS, EnumCodec
from pledger.history.codecs.unions import LiteralCodec, union_of
from pledger.history.codecs.untyped import ANY

# Grows with the annotations in the code, not with the data.
_codecs: dict[Any, Codec] = {
    **dict.fromkeys((Any, object, inspect.Parameter.empty), ANY),
    **dict.fromkeys((None, NoneType, NoReturn, Never), NULL),  # what never returns leaves nothing to keep
    tuple[()]: TupleCodec(()),
    **{codec.types[0]: codec for codec in (BOOL, INT, STR, FLOAT, *TEXTS)},
}

#: Wrappers that say nothing about the shape of the value.
_TRANSPARENT: Final = (Annotated, Required, NotRequired, Final, getattr(typing, "ReadOnly", Annotated))

#: What an abstract collection can be at run time; the value comes back as what it was.
_CONCRETE: Final[dict[Any, tuple[Any, ...]]] = {
    abc.Sequence: (list, tuple),
    abc.MutableSequence: (list,),
    abc.Set: (set, frozenset),
    abc.MutableSet: (set,),
    abc.Iterable: (list, tuple, set, frozenset),
    abc.Collection: (list, tuple, set, frozenset),
    abc.Mapping: (dict,),
    abc.MutableMapping: (dict,),
}


def codec_of(hint: Any) -> Codec:
    """The codec of an annotation. Raises Misfit for one whose values cannot be kept."""
    try:
        codec = _codecs.get(hint)
    except TypeError:  # Literal values and the metadata of Annotated need not be hashable
        return _build(hint)
    if codec is None:
        codec = _codecs[hint] = _build(hint)
    return codec


def _build(hint: Any) -> Codec:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in _TRANSPARENT:
        return codec_of(args[0])
    if origin is typing.Union or origin is types.UnionType:
        return union_of([codec_of(arg) for arg in args])
    if origin is Literal:
        return LiteralCodec(args, codec_of)
    if isinstance(hint, NewType):
        return codec_of(hint.__supertype__)
    if isinstance(hint, TypeVar):
        return codec_of(Any if hint.__bound__ is None else hint.__bound__)
    if isinstance(hint, (str, ForwardRef)):
        raise Misfit(f"the annotation {hint!r} refers to itself or to an unknown name. Annotate the part with Any.")
    if not isinstance(hint, type) and hasattr(hint, "__value__"):  # `type Name = ...` of Python 3.12
        return _alias_codec(hint)
    codec = _class_codec(origin or hint, args)
    if codec is None:
        raise Misfit(
            f"values annotated as {hint!r} cannot be kept. Annotate a supported type: a plain value, datetime, "
            "Decimal, UUID, bytes, an enum, a list, tuple, set or dict of them, a dataclass, attrs class, "
            "msgspec Struct, pydantic model, NamedTuple or TypedDict."
        )
    return codec


def _class_codec(cls: Any, args: tuple[Any, ...]) -> Codec | None:
    """The codec of a class with its type arguments, or None for a class that is not supported."""
    if not isinstance(cls, type):
        return None
    if cls in _CONCRETE:
        return union_of([_container_codec(concrete, args, homogeneous=True) for concrete in _CONCRETE[cls]])
    if cls in (list, tuple, set, frozenset, dict):
        return _container_codec(cls, args)
    if issubclass(cls, enum.Enum):
        return EnumCodec(cls)
    return ModelCodec(cls) if is_model(cls) else record_codec(cls, args, codec_of)


def _container_codec(cls: Any, args: tuple[Any, ...], *, homogeneous: bool = False) -> Codec:
    if cls is dict:
        key, item = args or (Any, Any)
        return DictCodec(codec_of(key), codec_of(item))
    if cls is tuple and args and not homogeneous and args[-1] is not ...:
        return TupleCodec(tuple(codec_of(arg) for arg in args))
    return ArrayCodec(cls, codec_of(args[0] if args else Any))


def _alias_codec(alias: Any) -> Codec:
    try:
        return codec_of(alias.__value__)
    except RecursionError:
        raise Misfit(f"the type {alias} refers to itself. Annotate the inner part with Any.") from None
