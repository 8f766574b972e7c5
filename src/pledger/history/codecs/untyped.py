"""Positions without a usable annotation: Any, object, bare list and dict, a missing annotation.

What JSON carries exactly is written plainly: str, int, finite float, bool, None, list, dict with str keys. The other
supported types travel in an envelope with their name and come back as what they were. Anything else is refused: it
could only come back as something else.

An object with a mark of no type here is no envelope of ours: a union wrote it under its annotation, or another program
did. It comes back as the dict that it is in JSON.
"""

from __future__ import annotations

from typing import Final

from pledger.history.codecs.codec import ALL_KINDS, TYPE, Codec, NoneType, envelope, mark_of, type_name
from pledger.history.codecs.containers import ArrayCodec, DictCodec
from pledger.history.codecs.json_tree import Misfit, check_depth
from pledger.history.codecs.notes import plain
from pledger.history.codecs.scalars import TEXTS, finite


class AnyCodec(Codec):
    name = "Any"
    types = ()
    kinds = ALL_KINDS
    passes = frozenset({str, int, bool, NoneType})
    reads = frozenset({str, int, bool, NoneType, float})

    def __init__(self) -> None:
        self._list = ArrayCodec(list, self)
        self._dict = DictCodec(self, self)
        marked = (ArrayCodec(tuple, self), ArrayCodec(set, self), ArrayCodec(frozenset, self), *TEXTS)
        self._marked_by_type: dict[type, Codec] = {codec.types[0]: codec for codec in marked}
        self._marked_by_tag: dict[str | None, Codec] = {codec.tag: codec for codec in marked}

    def encode(self, value: object, depth: int, /) -> object:
        cls = type(value)
        if cls in self.passes:
            return value
        if cls is dict:
            return self._dict.encode(value, depth)
        if cls is list:
            return self._list.encode(value, depth)
        if type(value) is float:
            return finite(value)
        codec = self._marked_by_type.get(cls)
        if codec is None:
            raise self.refused(value)
        check_depth(depth)
        return envelope(codec.tag, codec.encode(value, depth + 1))

    def decode(self, tree: object) -> object:
        if type(tree) is dict:
            codec = self._marked_by_tag.get(mark_of(tree)) if TYPE in tree else None
            return self._dict.decode(tree) if codec is None else codec.decode(tree)
        if type(tree) is list:
            if tree and type(tree[0]) is dict and TYPE in tree[0] and (bare := plain(tree)) is not tree:
                return self.decode(bare)
            return self._list.decode(tree)
        return tree

    def refused(self, value: object) -> Misfit:
        name = type_name(type(value))
        return Misfit(
            f"a value of type {name} is at a place without annotation, from where it could not come back. Annotate the "
            f"parameter, field or result with {name}, or convert the value to a plain one."
        )


ANY: Final = AnyCodec()
