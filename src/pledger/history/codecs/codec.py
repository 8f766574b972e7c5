"""What a codec is, the envelope that marks a type in JSON, and the words in which a misfit is told."""

from __future__ import annotations

from typing import Final

from pledger.history.codecs.json_tree import Misfit

#: The keys of an envelope, which marks the type of a value. A user's own dict that has TYPE travels inside one.
TYPE: Final = "$type"
VALUE: Final = "value"
_ENVELOPE: Final = {TYPE, VALUE}

NoneType: Final = type(None)

_JSON_WORDS: Final = {
    NoneType: "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}
#: What the root of a tree can be: the values of `Codec.kinds`.
ALL_KINDS: Final = frozenset(_JSON_WORDS)


class Codec:
    """How the values under one annotation are written as a tree and read back, equal and of equal type.

    name: the annotation in words; also marks the value inside a union.
    tag: marks the value where nothing is annotated, and "" for one that cannot be there. Every codec also reads its own
    value in such an envelope: a caller who knows a workflow only by its name, and code from before the annotation was
    added, have written it so. Classes and enums read theirs with their name: a union that has shrunk since wrote it.
    types: the exact run-time types that it writes. kinds: what the tree's root can be.
    native: it is JSON's own meaning of its kinds, which a union therefore writes without a mark.
    takes_notes: what it writes may have notes beside it or around it (`notes.py`).
    passes, reads: run-time types that `encode` and `decode` would return untouched, so that a container need not call.
    """

    name: str
    tag: str = ""
    types: tuple[type, ...]
    kinds: frozenset[type]
    native = False
    takes_notes = False
    passes: frozenset[type] = frozenset()
    reads: frozenset[type] = frozenset()

    def encode(self, value: object, depth: int, /) -> object:
        """The tree of a value. depth: containers around it. Raises Misfit for whatever would not come back equal."""
        raise NotImplementedError

    def decode(self, tree: object) -> object:
        """The value of a tree. Raises Misfit for a tree of another shape."""
        raise NotImplementedError

    def refused(self, value: object) -> Misfit:
        """The misfit of a value whose run-time type is not the annotated one."""
        return Misfit(
            f"annotated as {self.name}, but the value is of type {type_name(type(value))}. "
            "Pass the annotated type, or change the annotation."
        )

    def unexpected(self, tree: object) -> Misfit:
        """The misfit of a tree of another shape than `encode` writes."""
        return Misfit(
            f"expected {self.name}, found {described(tree)}. "
            "Send the annotated shape, or keep an annotation that takes what was recorded."
        )


def envelope(mark: str, body: object) -> dict[str, object]:
    return {TYPE: mark, VALUE: body}


def mark_of(tree: dict[str, object]) -> str | None:
    """The mark of an envelope, or None for any other object."""
    mark = tree.get(TYPE)
    return mark if type(mark) is str and tree.keys() == _ENVELOPE else None


def opened(tree: object, mark: str) -> object:
    """The body of an envelope with this mark; any other tree as it is, for the codec to judge."""
    return tree[VALUE] if type(tree) is dict and TYPE in tree and mark_of(tree) == mark else tree


def described(tree: object) -> str:
    """A tree in words, without its content: payloads may hold secrets and messages end in logs."""
    mark = mark_of(tree) if type(tree) is dict else None
    return _JSON_WORDS[type(tree)] if mark is None else f"an object marked {TYPE} {mark[:80]!r}"


def type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
