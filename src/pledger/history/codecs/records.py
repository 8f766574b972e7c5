"""Classes with named fields, as objects: dataclasses, attrs classes, msgspec Structs, NamedTuples and TypedDicts.

Reading is lenient where code changes over time: an unknown key is skipped and a missing field takes its default.
Writing is strict. Fields are looked at on first use, so that classes may refer to themselves and to later ones.

attrs is not imported: a class of its making brings what is needed.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple, NotRequired, Required, TypeAlias, TypeVar

import msgspec

from pledger.history.codecs.codec import TYPE, Codec, envelope, mark_of, opened, type_name
from pledger.history.codecs.json_tree import Misfit, Step, check_depth

CodecOf: TypeAlias = Callable[[object], Codec]

_ABSENT: Final = object()


def record_codec(cls: type, parameters: tuple[object, ...], codec_of: CodecOf) -> Codec | None:
    """The codec of a class with fields, or None for any other class.

    parameters: what a generic class is annotated with, as (int,) in Box[int]; left out, they count as Any.
    """
    if hasattr(cls, "__required_keys__"):
        return TypedDictCodec(cls, parameters, codec_of)
    is_record = (
        dataclasses.is_dataclass(cls)
        or hasattr(cls, "__attrs_attrs__")
        or issubclass(cls, msgspec.Struct)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )
    return RecordCodec(cls, parameters, codec_of) if is_record else None


class Field(NamedTuple):
    """name: the attribute. key: in JSON. argument: of the constructor, or None when it takes none.

    required: the constructor has no default for it.
    """

    name: str
    key: str
    argument: str | None
    required: bool
    codec: Codec


class RecordCodec(Codec):
    """Instances of exactly one class, rebuilt by its own constructor from the codecs of its fields."""

    kinds = frozenset({dict})

    def __init__(self, cls: type, parameters: tuple[object, ...], codec_of: CodecOf) -> None:
        self._cls = cls
        self._parameters = parameters
        self._codec_of = codec_of
        self.name = _record_name(cls, parameters, codec_of)
        self.types = (cls,)

    @cached_property
    def _fields(self) -> tuple[Field, ...]:
        hints = _field_hints(self._cls, self._parameters)
        taken = inspect.signature(self._cls).parameters
        fields = []
        for name, key, argument in _members(self._cls):
            parameter = taken.get(argument) if argument is not None else None
            required = parameter is not None and parameter.default is inspect.Parameter.empty
            codec = _codec_under(key, hints.get(name, Any), self._codec_of)
            fields.append(Field(name, key, parameter.name if parameter else None, required, codec))
        return tuple(fields)

    @cached_property
    def _runs_user_code(self) -> bool:
        """Whether building an instance may change the values of its fields: then each one is rebuilt to see."""
        cls: Any = self._cls
        own = vars(cls)
        if any(hasattr(cls, hook) for hook in ("__post_init__", "__attrs_post_init__", "__pydantic_validator__")):
            return True
        if hasattr(cls, "__attrs_attrs__"):
            converts = any(member.converter is not None for member in cls.__attrs_attrs__)
            return converts or "__attrs_attrs__" not in own or "__attrs_init__" in own
        if dataclasses.is_dataclass(cls):
            return "__dataclass_params__" not in own or not own["__dataclass_params__"].init
        return "_fields" not in own and issubclass(cls, tuple)

    def encode(self, value: object, depth: int, /) -> object:
        if type(value) is not self._cls:
            raise self.refused(value)
        check_depth(depth)
        tree: dict[str, object] = {}
        for name, key, _, _, codec in self._fields:
            item = getattr(value, name, _ABSENT)
            if item is _ABSENT:
                raise Misfit(f"the {self.name} has no value for this field. Set it before passing it on.", (key,))
            try:
                tree[key] = item if type(item) in codec.passes else codec.encode(item, depth + 1)
            except Misfit as misfit:
                misfit.under(key)
                raise
        if self._runs_user_code:
            self._prove(value, tree)
        return tree

    def decode(self, tree: object) -> object:
        tree = opened(tree, self.name)
        if type(tree) is not dict:
            raise self.unexpected(tree)
        arguments: dict[str, object] = {}
        attributes: dict[str, object] = {}
        for name, key, argument, required, codec in self._fields:
            item = tree.get(key, _ABSENT)
            if item is _ABSENT:
                if required:
                    raise Misfit(
                        f"the field {key} of {self.name} is missing. Send it, or give the field a default.", (key,)
                    )
                continue
            try:
                item = item if type(item) in codec.reads else codec.decode(item)
            except Misfit as misfit:
                misfit.under(key)
                raise
            if argument is None:
                attributes[name] = item
            else:
                arguments[argument] = item
        try:
            record: object = self._cls(**arguments)
        except Exception as error:  # the user's own code
            raise rejected(self.name, error) from error
        for name, item in attributes.items():
            object.__setattr__(record, name, item)  # also where the class is frozen
        return record

    def refused(self, value: object) -> Misfit:
        if not isinstance(value, self._cls):
            return super().refused(value)
        name = type_name(type(value))
        return Misfit(
            f"annotated as {self.name}, but the value is of its subclass {name}, whose own fields would be lost. "
            f"Annotate {name}, or a union of the two."
        )

    def _prove(self, value: object, tree: dict[str, object]) -> None:
        again = self.decode(tree)
        for field in self._fields:
            if getattr(value, field.name) != getattr(again, field.name):
                raise changed(self.name, (field.key,))


class TypedDictCodec(Codec):
    """A dict with the keys of a TypedDict, in the order in which they come."""

    kinds = frozenset({dict})
    types = (dict,)

    def __init__(self, cls: type, parameters: tuple[object, ...], codec_of: CodecOf) -> None:
        self._cls = cls
        self._parameters = parameters
        self._codec_of = codec_of
        self.name = _record_name(cls, parameters, codec_of)

    @cached_property
    def _items(self) -> dict[str, Codec]:
        hints = _field_hints(self._cls, self._parameters)
        return {key: _codec_under(key, hint, self._codec_of) for key, hint in hints.items()}

    @cached_property
    def _required(self) -> frozenset[str]:
        # The class itself cannot see Required and NotRequired in annotations that are strings (PEP 563).
        cls: Any = self._cls
        origins = {key: typing.get_origin(hint) for key, hint in _field_hints(self._cls, self._parameters).items()}
        stated = {key for key in cls.__required_keys__ if origins[key] is not NotRequired}
        return frozenset(stated | {key for key, origin in origins.items() if origin is Required})

    def encode(self, value: object, depth: int, /) -> object:
        if type(value) is not dict:
            raise self.refused(value)
        check_depth(depth)
        self._check_keys(value)
        tree: dict[str, object] = {}
        for key, item in value.items():
            codec = self._items.get(key)
            if codec is None:
                raise Misfit(
                    f"{self.name} has no such key, so it would be lost. Declare it there, or leave it out.", (str(key),)
                )
            try:
                tree[key] = codec.encode(item, depth + 1)
            except Misfit as misfit:
                misfit.under(key)
                raise
        # What looks like an envelope of ours travels inside one.
        return envelope(self.name, tree) if TYPE in tree and mark_of(tree) == self.name else tree

    def decode(self, tree: object) -> object:
        tree = opened(tree, self.name)
        if type(tree) is not dict:
            raise self.unexpected(tree)
        self._check_keys(tree)
        out: dict[str, object] = {}
        for key, item in tree.items():
            codec = self._items.get(key)
            if codec is None:
                continue
            try:
                out[key] = codec.decode(item)
            except Misfit as misfit:
                misfit.under(key)
                raise
        return out

    def _check_keys(self, keys: Mapping[str, object]) -> None:
        for key in sorted(self._required - keys.keys()):
            raise Misfit(f"the key {key} of {self.name} is missing. Send it, or declare it NotRequired.", (key,))


# What a class says about itself ---------------------------------------------------------------------------------------


def _members(cls: Any) -> list[tuple[str, str, str | None]]:
    """Attribute, JSON key and constructor argument (None: the constructor does not take it) of every field."""
    if issubclass(cls, msgspec.Struct):
        return [(field.name, field.encode_name, field.name) for field in msgspec.structs.fields(cls)]
    if hasattr(cls, "__attrs_attrs__"):
        return [(member.name, member.name, member.alias if member.init else None) for member in cls.__attrs_attrs__]
    if dataclasses.is_dataclass(cls):
        return [(field.name, field.name, field.name if field.init else None) for field in dataclasses.fields(cls)]
    return [(name, name, name) for name in cls._fields]


def _codec_under(key: str, hint: object, codec_of: CodecOf) -> Codec:
    try:
        return codec_of(hint)
    except Misfit as misfit:
        misfit.under(key)
        raise


def _field_hints(cls: Any, parameters: tuple[object, ...]) -> dict[str, Any]:
    """The annotations of the class, strings resolved and its type parameters filled in."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception as error:
        raise Misfit(
            f"the annotations of {type_name(cls)} cannot be resolved ({type(error).__name__}: {error}). "
            "Define or import the names at module level, outside of `if TYPE_CHECKING`."
        ) from error
    filled = dict(zip(getattr(cls, "__parameters__", ()), parameters, strict=False))
    return {name: _with_parameters(hint, filled) for name, hint in hints.items()}


def _with_parameters(hint: Any, filled: Mapping[TypeVar, object]) -> Any:
    if isinstance(hint, TypeVar):
        return filled.get(hint, Any)
    parameters = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    return hint[tuple(filled.get(parameter, Any) for parameter in parameters)] if parameters else hint


def _record_name(cls: type, parameters: tuple[object, ...], codec_of: CodecOf) -> str:
    names = ", ".join(codec_of(parameter).name for parameter in parameters)
    return f"{cls.__qualname__}[{names}]" if names else cls.__qualname__


# What is wrong with one -----------------------------------------------------------------------------------------------


def rejected(name: str, error: Exception) -> Misfit:
    text = f"{type(error).__name__}: {error}"
    return Misfit(
        f"{name} does not take these values ({text[:300]}). Send others, or let the class take what was recorded."
    )


def changed(name: str, steps: Iterable[Step]) -> Misfit:
    return Misfit(
        f"building {name} again from its own values gives another one. Let its validators, converters and "
        "__post_init__ leave values alone that they have passed before, and annotate the fields with what they hold.",
        steps,
    )
