"""What the plain JSON of a pydantic model does not carry, noted beside it or around it.

    {"a": 0, "b": 2, "$type": {"unset": [[[], ["a"]]]}}
    [{"$type": {"zones": [[["at"], "[Europe/Berlin]"]]}}, {"at": "2024-07-01T12:00:00+02:00"}]

Each kind has pairs of a path and what is noted there. A path has the names of fields, and positions in lists, tuples
and dicts: it leads through the model, not through its JSON, whose keys may be aliases.

    unset   names of fields that nobody set: their values are in the JSON, as defaults may change later
    set     names of fields that somebody set and that the JSON leaves out
    zones   of a datetime or a time, which JSON knows by its offset only: as RFC 9557 writes it behind one

Code from before there were notes skips those beside, and so takes from a record what it has always taken: every value,
and all fields as set. A zone would be another value to it: so that is noted around, which it refuses. No codec but that
of models writes TYPE with an object behind it. Notes do not count in a digest.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from pledger.history.codecs.codec import TYPE
from pledger.history.codecs.json_tree import Step

UNSET: Final = "unset"
SET: Final = "set"
ZONES: Final = "zones"
KINDS: Final = frozenset({UNSET, SET, ZONES})

Notes: TypeAlias = dict[str, list[tuple[tuple[Step, ...], object]]]


def beside(tree: dict[str, object], notes: Notes) -> dict[str, object]:
    return {**tree, TYPE: notes}


def around(tree: object, notes: Notes) -> list[object]:
    return [{TYPE: notes}, tree]


def split(tree: object) -> tuple[object, dict[str, object] | None]:
    """The tree without notes, and the notes as they were read, or None where there are none."""
    if type(tree) is dict:
        notes = tree.get(TYPE)
        if type(notes) is dict and notes:
            return {key: item for key, item in tree.items() if key != TYPE}, notes
        return tree, None
    if type(tree) is list and len(tree) == 2:  # noqa: PLR2004 - the notes and what they are about
        head = tree[0]
        if type(head) is dict and len(head) == 1 and type(notes := head.get(TYPE)) is dict and notes:
            return tree[1], notes
    return tree, None


def plain(tree: object) -> object:
    """The tree without notes of kinds that are known here, for who cannot apply them."""
    bare, notes = split(tree)
    return tree if notes is None or not notes.keys() <= KINDS else bare


def all_plain(tree: object) -> object:
    """The same at every place of the tree."""
    tree = plain(tree)
    if type(tree) is dict:
        return {key: all_plain(item) for key, item in tree.items()}
    return [all_plain(item) for item in tree] if type(tree) is list else tree
