"""pydantic models, in pydantic's own JSON. pydantic is not imported: a model brings its methods."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from pledger.history.codecs import notes
from pledger.history.codecs.codec import ALL_KINDS, TYPE, Codec, opened
from pledger.history.codecs.faithful import Comparison, is_model, restored
from pledger.history.codecs.json_tree import Misfit, check_depth, dumps, walk
from pledger.history.codecs.records import changed, rejected
from pledger.history.codecs.scalars import aware, finite

__all__ = ["ModelCodec", "is_model"]


class ModelCodec(Codec):
    """A pydantic model in pydantic's own JSON, so that aliases, serializers and validators mean what they mean there.

    Its rules are laxer than ours, so each value is validated again from what was written, and compared: it must be
    equal, part by part and of the same types. Which fields were set, and the zones of its times, are noted.
    """

    takes_notes = True

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self.name = cls.__qualname__
        self.types = (cls,)
        self.kinds = ALL_KINDS if getattr(cls, "__pydantic_root_model__", False) else frozenset({dict})

    def encode(self, value: object, depth: int, /) -> object:
        if type(value) is not self._cls:
            raise self.refused(value)
        check_depth(depth)
        tree = self._dumped(value)
        again = self.decode(tree)
        found = Comparison(self.name, value, again)
        if not found.notes:
            if again != value:
                raise found.unequal or changed(self.name, ())
            return tree
        again = restored(again, found.notes)
        left = Comparison(self.name, value, again)
        if again != value or left.notes:
            raise left.unequal or changed(self.name, ())
        return self._noted(tree, found.notes, value)

    def decode(self, tree: object) -> object:
        tree = opened(tree, self.name)
        bare, noted = notes.split(tree)
        if noted is None or (type(tree) is dict and self._keeps_type):
            return self._validated(tree)
        return restored(self._validated(bare), noted)

    @cached_property
    def _keeps_type(self) -> bool:
        """Whether TYPE may be a key of the model itself, so that notes cannot stand there."""
        fields = self._cls.model_fields.values()
        aliases = [
            each for field in fields for each in (field.alias, field.validation_alias, field.serialization_alias)
        ]
        return self._cls.model_config.get("extra") == "allow" or any(f"'{TYPE}'" in repr(alias) for alias in aliases)

    def _dumped(self, model: Any) -> object:
        try:
            tree: object = model.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
            python = model.model_dump(warnings=False)
        except Exception as error:  # the user's own serializers
            raise rejected(self.name, error) from error
        has_sets = False
        for leaf, steps in walk(python):
            try:
                if type(leaf) is float:
                    finite(leaf)
                elif isinstance(leaf, datetime):
                    aware(leaf)
            except Misfit as misfit:
                raise Misfit(misfit.problem, steps) from None
            has_sets = has_sets or isinstance(leaf, (set, frozenset))
        if has_sets:
            return _in_order(tree, model.model_dump(by_alias=True, round_trip=True, warnings=False))
        return tree

    def _validated(self, tree: object) -> object:
        text = dumps(tree)
        try:
            value: object = self._cls.model_validate_json(text)
        except Exception as error:  # the user's own validators
            raise _invalid(self.name, error) from error
        return value

    def _noted(self, tree: object, found: notes.Notes, value: object) -> object:
        """The tree with its notes, where code that knows no notes takes what it always took, or nothing."""
        if notes.ZONES not in found and type(tree) is dict and not self._keeps_type:
            noted = notes.beside(tree, found)
            if self._read_before_notes(noted) in (None, value):
                return noted
        wrapped = notes.around(tree, found)
        if self._read_before_notes(wrapped) is not None:
            lost = "zones its times have" if notes.ZONES in found else "of its fields were set"
            raise Misfit(
                f"{self.name} takes any array, so that it cannot be noted which {lost}. Keep it in another model."
            )
        return wrapped

    def _read_before_notes(self, tree: object) -> object:
        """What older code makes of the tree, or None where it refuses it."""
        try:
            return self._validated(tree)
        except Misfit:
            return None


def _in_order(tree: object, python: object) -> object:
    """The tree with the elements of sets in the order of their texts, as everywhere: their own order differs between
    processes. python: of the same shape, where sets are sets."""
    if isinstance(python, (set, frozenset)) and type(tree) is list:
        return sorted(tree, key=dumps)
    if isinstance(python, (list, tuple)) and type(tree) is list and len(python) == len(tree):
        return [_in_order(item, other) for item, other in zip(tree, python, strict=True)]
    if isinstance(python, dict) and type(tree) is dict and len(python) == len(tree):
        return {key: _in_order(item, other) for (key, item), other in zip(tree.items(), python.values(), strict=True)}
    return tree


def _invalid(name: str, error: Any) -> Misfit:
    """The first complaint of a pydantic ValidationError, without the input that it would quote."""
    if not hasattr(error, "errors"):
        return rejected(name, error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return Misfit(
        f"{name} does not take this value ({first['msg']}). Send another, or let the model take what was recorded.",
        reversed(first["loc"]),
    )
