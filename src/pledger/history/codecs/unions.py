"""A | B, Optional and Literal.

A member of a union is written plainly where its JSON tells it from the others, else in an envelope with its name:
`Order | None` and `int | str` are plain; in `str | datetime` the datetime is marked; in `Order | Refund` both are.
The order of the members never matters: Python itself takes `A | B` and `B | A` for equal, and caches one for the other.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeAlias

from pledger.history.codecs.codec import TYPE, VALUE, Codec, described, envelope, mark_of, type_name
from pledger.history.codecs.json_tree import Misfit, Step, check_depth
from pledger.history.codecs.scalars import FLOAT, INT
from pledger.history.codecs.untyped import ANY


def union_of(codecs: Iterable[Codec]) -> Codec:
    """The codec of a union. Raises Misfit where two classes of one name could not be told apart."""
    members: dict[str, Codec] = {}
    for codec in codecs:
        for member in codec.members if isinstance(codec, UnionCodec) else (codec,):
            known = members.setdefault(member.name, member)
            if known.types != member.types:
                raise Misfit(
                    f"two members of the union are both called {member.name}. "
                    "Rename one: a recorded value names its class."
                )
    if ANY.name in members:
        return ANY
    if FLOAT.name in members:  # takes the ints as well
        members.pop(INT.name, None)
    if len(members) == 1:
        return next(iter(members.values()))
    return UnionCodec([members[name] for name in sorted(members)])


#: What came of each dict and list that was tried against a union: by the ids of both, with the tree itself, so that no
#: other one gets its id. Members that hold the union again each try what is below them, so without it the time doubles
#: with every level. Only for one outermost attempt: a tree stands at one place, so no value gets to two.
_Known: TypeAlias = dict[
    tuple[int, int], tuple[object, object, tuple[str, tuple[Step, ...], BaseException | None] | None]
]
_known: ContextVar[_Known | None] = ContextVar("pledger.unions.known", default=None)


class UnionCodec(Codec):
    def __init__(self, members: Sequence[Codec]) -> None:
        self.members = tuple(members)
        self.name = " | ".join(member.name for member in members)
        self.types = tuple(cls for member in members for cls in member.types)
        self.kinds = frozenset(kind for member in members for kind in member.kinds)
        self._by_name: dict[str | None, Codec] = {member.name: member for member in members}
        self._by_type: dict[type, list[Codec]] = {}
        for member in members:
            for cls in member.types:
                self._by_type.setdefault(cls, []).append(member)
        self._plain = {kind: plain for kind in self.kinds if (plain := self._plain_member(kind)) is not None}
        self._unmarked = {member for member in members if all(self._plain.get(kind) is member for kind in member.kinds)}
        self.passes = frozenset(
            cls
            for cls, (taker, *others) in self._by_type.items()
            if not others and taker in self._unmarked and cls in taker.passes
        )
        self.reads = frozenset(kind for kind, member in self._plain.items() if kind in member.reads)

    def _plain_member(self, kind: type) -> Codec | None:
        """Whose value a bare tree of this kind is: the only member that writes it, or the only native one."""
        claimants = [member for member in self.members if kind in member.kinds]
        natives = [member for member in claimants if member.native]
        if len(claimants) == 1:
            return claimants[0]
        return natives[0] if len(natives) == 1 else None

    def encode(self, value: object, depth: int, /) -> object:
        takers = self._by_type.get(type(value))
        if takers is None:
            raise self.refused(value)
        if len(takers) == 1:
            return self._encode_as(takers[0], value, depth)
        for taker in takers:
            with suppress(Misfit):
                return self._encode_as(taker, value, depth)
        raise Misfit(
            f"annotated as {self.name}, but this {type_name(type(value))} fits no member of it. "
            "Make it fit one, or change the annotation."
        )

    def _encode_as(self, member: Codec, value: object, depth: int) -> object:
        if member in self._unmarked:
            body = member.encode(value, depth)
            if type(body) is dict:
                if TYPE not in body or (member.takes_notes and type(body[TYPE]) is dict):
                    return body
            elif type(body) is not list or list in member.kinds or list not in self.kinds:
                return body  # a list that is not of the member's kinds is notes around its value
        check_depth(depth)
        return envelope(member.name, member.encode(value, depth + 1))

    def decode(self, tree: object) -> object:
        if type(tree) is dict and TYPE in tree:
            return self._open(tree)
        member = self._plain.get(type(tree))
        return self._decode_bare(tree, self.members) if member is None else member.decode(tree)

    def _open(self, tree: dict[str, object]) -> object:
        mark = mark_of(tree)
        if mark in self._by_name:
            return self._by_name[mark].decode(tree[VALUE])
        # Perhaps written where nothing was annotated, by a tag instead of a name.
        return self._decode_bare(tree, [member for member in self.members if member.tag == mark] or self.members)

    def _decode_bare(self, tree: object, members: Sequence[Codec]) -> object:
        """The value of a tree without a mark where one is expected: from before the union grew, or written by hand.

        It counts if exactly one member takes it; a guess between two could change what was recorded.
        """
        if type(tree) is not dict and type(tree) is not list:
            return self._only_fit(tree, members)
        known = _known.get()
        if known is not None:
            return self._decode_once(tree, members, known)
        known = {}
        token = _known.set(known)
        try:
            return self._decode_once(tree, members, known)
        finally:
            _known.reset(token)

    def _decode_once(self, tree: object, members: Sequence[Codec], known: _Known) -> object:
        key = (id(tree), id(self))
        found = known.get(key)
        if found is None:
            try:
                found = (tree, self._only_fit(tree, members), None)
            except Misfit as misfit:
                found = (tree, None, (misfit.problem, tuple(misfit.steps), misfit.__cause__))
            known[key] = found
        _, value, refused = found
        if refused is not None:
            problem, steps, cause = refused
            raise Misfit(problem, steps) from cause  # a new one: the containers around add their steps to it
        return value

    def _only_fit(self, tree: object, members: Sequence[Codec]) -> object:
        values: list[object] = []
        for member in members:
            with suppress(Misfit):
                values.append(member.decode(tree))
        if len(values) == 1:
            return values[0]
        if not values:
            raise self.unexpected(tree)
        raise Misfit(
            f"{described(tree)} fits several members of {self.name}. Mark the one that is meant, like "
            f'{{"{TYPE}": "{members[0].name}", "value": ...}}.'
        )


class LiteralCodec(Codec):
    """Literal[...]: one of the values, by its type's codec. 1, True and 1.0 are different values here."""

    def __init__(self, values: tuple[object, ...], codec_of: Callable[[object], Codec]) -> None:
        self._base = union_of(codec_of(cls) for cls in {type(value) for value in values})
        self._values = {(type(value), value) for value in values}
        self.name = f"Literal[{', '.join(sorted(_literal_text(value) for value in values))}]"
        self.types = self._base.types
        self.kinds = self._base.kinds

    def encode(self, value: object, depth: int, /) -> object:
        if type(value) not in self.types:
            raise self.refused(value)
        self._check(value)
        return self._base.encode(value, depth)

    def decode(self, tree: object) -> object:
        value = self._base.decode(tree)
        self._check(value)
        return value

    def _check(self, value: object) -> None:
        if (type(value), value) not in self._values:
            raise Misfit(f"the {type_name(type(value))} is none of {self.name}. Pass one of them, or add it there.")


def _literal_text(value: object) -> str:
    return str(value) if isinstance(value, enum.Enum) else repr(value)
