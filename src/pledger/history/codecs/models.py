"""pydantic models, in pydantic's own JSON. pydantic is not imported: a model brings its methods."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pledger.history.codecs.codec import ALL_KINDS, Codec, opened
from pledger.history.codecs.json_tree import Misfit, check_depth, dumps, walk
from pledger.history.codecs.records import changed, rejected
from pledger.history.codecs.scalars import aware, finite


def is_model(cls: type) -> bool:
    return hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_validate_json")


class ModelCodec(Codec):
    """A pydantic model in pydantic's own JSON, so that aliases, serializers and validators mean what they mean there.

    Its rules are laxer than ours, so each value is validated again from what was written, and must be equal.
    """

    def __init__(self, cls: Any) -> None:
        self._cls = cls
        self.name = cls.__qualname__
        self.types = (cls,)
        self.kinds = ALL_KINDS if getattr(cls, "__pydantic_root_model__", False) else frozenset({dict})

    def encode(self, value: object, depth: int, /) -> object:
        if type(value) is not self._cls:
            raise self.refused(value)
        check_depth(depth)
        model: Any = value
        try:
            tree: object = model.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
            python = model.model_dump(warnings=False)
        except Exception as error:  # the user's own serializers
            raise rejected(self.name, error) from error
        for leaf, steps in walk(python):
            try:
                if type(leaf) is float:
                    finite(leaf)
                elif isinstance(leaf, datetime):
                    aware(leaf)
            except Misfit as misfit:
                raise Misfit(misfit.problem, steps) from None
        if self.decode(tree) != value:
            raise changed(self.name, None)
        return tree

    def decode(self, tree: object) -> object:
        text = dumps(opened(tree, self.name))
        try:
            value: object = self._cls.model_validate_json(text)
        except Exception as error:  # the user's own validators
            raise _invalid(self.name, error) from error
        return value


def _invalid(name: str, error: Any) -> Misfit:
    """The first complaint of a pydantic ValidationError, without the input that it would quote."""
    if not hasattr(error, "errors"):
        return rejected(name, error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return Misfit(
        f"{name} does not take this value ({first['msg']}). Send another, or let the model take what was recorded.",
        reversed(first["loc"]),
    )
