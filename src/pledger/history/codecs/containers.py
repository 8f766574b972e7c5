"""list, tuple, set, frozenset and dict, with the codecs of what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pledger.history.codecs.codec import TYPE, VALUE, Codec, envelope, opened
from pledger.history.codecs.json_tree import NESTING_MAX, Misfit, Step, canonical, check_depth, dumps
from pledger.history.codecs.notes import plain
from pledger.history.codecs.scalars import INT, INT_KEY

_STRINGS = frozenset({str})


class ArrayCodec(Codec):
    """list[T], tuple[T, ...], set[T], frozenset[T] as an array.

    A set is written in the order of its elements' texts: its own order differs between processes, and the same input
    must have the same digest in all of them.
    """

    kinds = frozenset({list})

    def __init__(
        self, cls: type[list[object] | tuple[object, ...] | set[object] | frozenset[object]], item: Codec
    ) -> None:
        self.tag = cls.__name__
        self.name = f"{self.tag}[{item.name}{', ...' if cls is tuple else ''}]"
        self.types = (cls,)
        self.native = cls is list
        self._build: Callable[[Iterable[object]], object] = cls
        self._item = item
        self._unordered = cls is set or cls is frozenset

    def encode(self, value: object, depth: int, /) -> object:
        if type(value) is not self.types[0]:
            raise self.refused(value)
        check_depth(depth)
        passes, encode = self._item.passes, self._item.encode
        if self.native and passes.issuperset(map(type, value)):  # type: ignore[call-overload] # one of the four
            return value
        array: list[object] = []
        try:
            for item in value:  # type: ignore[attr-defined]  # one of the four, checked above
                array.append(item if type(item) in passes else encode(item, depth + 1))  # noqa: PERF401 - as below
        except Misfit as misfit:
            if not self._unordered:  # the place of an element in a set says nothing
                misfit.under(len(array))
            raise
        if self._unordered:
            array.sort(key=dumps)
        return array

    def decode(self, tree: object) -> object:
        array = tree if type(tree) is list else opened(tree, self.tag)
        if type(array) is not list:
            raise self.unexpected(tree)
        reads, decode = self._item.reads, self._item.decode
        if self.native and reads.issuperset(map(type, array)):
            return array
        items: list[object] = []
        try:
            for item in array:
                items.append(item if type(item) in reads else decode(item))  # noqa: PERF401 - a misfit tells where
        except Misfit as misfit:
            misfit.under(len(items))
            raise
        if self.native:
            return items
        try:
            return self._build(items)
        except TypeError:
            raise _unhashable(self.name) from None


class TupleCodec(Codec):
    """tuple[A, B] as an array of just as many elements."""

    kinds = frozenset({list})
    types = (tuple,)
    tag = "tuple"

    def __init__(self, items: tuple[Codec, ...]) -> None:
        self.name = f"tuple[{', '.join(item.name for item in items) or '()'}]"
        self._items = items

    def encode(self, value: object, depth: int, /) -> object:
        if type(value) is not tuple:
            raise self.refused(value)
        if len(value) != len(self._items):
            raise self._wrong_length(len(value))
        check_depth(depth)
        array: list[object] = []
        try:
            for item, codec in zip(value, self._items, strict=True):
                array.append(codec.encode(item, depth + 1))
        except Misfit as misfit:
            misfit.under(len(array))
            raise
        return array

    def decode(self, tree: object) -> object:
        array = opened(tree, self.tag)
        if type(array) is not list:
            raise self.unexpected(tree)
        if len(array) != len(self._items):
            raise self._wrong_length(len(array))
        items: list[object] = []
        try:
            for item, codec in zip(array, self._items, strict=True):
                items.append(codec.decode(item))
        except Misfit as misfit:
            misfit.under(len(items))
            raise
        return tuple(items)

    def _wrong_length(self, length: int) -> Misfit:
        return Misfit(
            f"annotated as {self.name}, but there are {length} elements. "
            f"Pass {len(self._items)}, or change the annotation."
        )


class DictCodec(Codec):
    """dict[K, V] as an object where every key is written as a string, else as an envelope of pairs in their order."""

    kinds = frozenset({dict})
    types = (dict,)
    tag = "dict"
    native = True

    def __init__(self, key: Codec, item: Codec) -> None:
        self.name = f"dict[{key.name}, {item.name}]"
        self._key = INT_KEY if key is INT else key
        self._item = item

    def encode(self, value: object, depth: int, /) -> object:
        if type(value) is not dict:
            raise self.refused(value)
        if depth >= NESTING_MAX:
            check_depth(depth)
        passes, encode = self._item.passes, self._item.encode
        key_passes, encode_key = self._key.passes, self._key.encode
        if (
            passes.issuperset(map(type, value.values()))
            and str in key_passes
            and _STRINGS.issuperset(map(type, value))
            and TYPE not in value
        ):
            return value
        out: dict[str, object] = {}
        key: object = None
        try:
            for key, item in value.items():
                name = key if type(key) in key_passes else encode_key(key, depth + 1)
                if type(name) is not str or name == TYPE:
                    break
                out[name] = item if type(item) in passes else encode(item, depth + 1)
            else:
                return out
        except Misfit as misfit:
            misfit.under(_step(key))
            raise
        return self._encode_pairs(value, depth)

    def decode(self, tree: object) -> object:
        if type(tree) is not dict:
            if (bare := plain(tree)) is not tree:
                return self.decode(bare)
            raise self.unexpected(tree)
        if TYPE in tree:
            if (pairs := opened(tree, self.tag)) is not tree:
                return self._decode_pairs(pairs)
            if (bare := plain(tree)) is not tree:
                return self.decode(bare)
        reads, decode = self._item.reads, self._item.decode
        key_reads, decode_key = self._key.reads, self._key.decode
        if str in key_reads and reads.issuperset(map(type, tree.values())):
            return tree
        out: dict[object, object] = {}
        name: object = None
        try:
            for name, item in tree.items():
                key = name if str in key_reads else decode_key(name)
                out[key] = item if type(item) in reads else decode(item)
        except Misfit as misfit:
            misfit.under(_step(name))
            raise
        return out

    def _encode_pairs(self, value: dict[object, object], depth: int) -> object:
        check_depth(depth + 2)  # the envelope, the array, the pair
        pairs: list[object] = []
        key: object = None
        try:
            for key, item in value.items():
                pairs.append([self._key.encode(key, depth + 3), self._item.encode(item, depth + 3)])
        except Misfit as misfit:
            misfit.under(_step(key))
            raise
        return envelope(self.tag, pairs)

    def _decode_pairs(self, pairs: object) -> object:
        out: dict[object, object] = {}
        for pair in pairs if type(pairs) is list else [pairs]:
            match pair:
                case [name, body]:
                    pass
                case _:
                    raise Misfit('the body of a marked dict is no array of pairs. Send it like [["a", 1], ["b", 2]].')
            try:
                key, item = self._key.decode(name), self._item.decode(body)
            except Misfit as misfit:
                misfit.under(_step(name))
                raise
            try:
                out[key] = item
            except TypeError:
                raise _unhashable(self.name) from None
        return out


def ordered_pairs(tree: object) -> object:
    """The tree with the pairs of every marked dict in the order of their texts: equal dicts become equal trees."""
    if type(tree) is list:
        return [ordered_pairs(item) for item in tree]
    if type(tree) is dict:
        ordered = {key: ordered_pairs(item) for key, item in tree.items()}
        if type(pairs := opened(ordered, DictCodec.tag)) is list:
            ordered[VALUE] = sorted(pairs, key=canonical)
        return ordered
    return tree


def _step(key: object) -> Step:
    return key if isinstance(key, (str, int)) else f"key of type {type(key).__name__}"


def _unhashable(name: str) -> Misfit:
    return Misfit(f"expected {name}, found an element that cannot be hashed, such as an array or an object.")
