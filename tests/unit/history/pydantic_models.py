"""pydantic models, all that user code can see of one, and how versions before notes read them."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from tests.unit.history.models import NOON

BERLIN = ZoneInfo("Europe/Berlin")
SUMMER = datetime(2031, 7, 1, 12, tzinfo=BERLIN)
#: The hour that comes twice, its second time.
AGAIN = datetime(2031, 10, 26, 2, 30, tzinfo=BERLIN, fold=1)


class Grade(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Leaf(BaseModel):
    a: int = 0
    b: str | None = None


@dataclass(frozen=True)
class Slot:
    at: datetime
    leaf: Leaf


class Pair(NamedTuple):
    at: datetime
    n: int = 0


class Patch(BaseModel):
    name: str | None = None
    at: datetime | None = None
    opens: time | None = None
    leaf: Leaf | None = None
    leaves: list[Leaf] = []
    by_day: dict[str, Leaf] = {}
    pair: Pair | None = None
    slots: tuple[Slot, ...] = ()
    anything: Any = None
    key: UUID = Field(default_factory=uuid4)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    at: datetime = NOON
    n: int = 0


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    n: int = 0


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    kind: Any = Field(None, alias="$type")
    at: datetime | None = Field(None, alias="When")


class Moments(pydantic.RootModel[list[datetime]]):
    pass


class Anything(pydantic.RootModel[Any]):
    pass


def facts(value: Any) -> object:
    """All that user code can see of a value: types, fields set, zones, folds."""
    match value:
        case BaseModel():
            parts = {**value.__dict__, **(value.__pydantic_extra__ or {})}
            return type(value), sorted(value.model_fields_set), {name: facts(part) for name, part in parts.items()}
        case datetime() | time():
            zone = value.tzinfo
            return value.isoformat(), value.fold, zone.key if isinstance(zone, ZoneInfo) else None
        case Slot():
            return Slot, facts(value.at), facts(value.leaf)
        case list() | tuple():
            return type(value), [facts(item) for item in value]
        case dict():
            return [(key, facts(item)) for key, item in value.items()]
    return type(value), value


def read_before_notes(data: bytes, cls: type[Any]) -> Any:
    """As versions before notes read a model. Their unions tell its JSON by its kind, or by the name of the class."""
    tree = json.loads(data)
    if isinstance(tree, dict) and tree.keys() == {"$type", "value"} and tree["$type"] == cls.__qualname__:
        data = json.dumps(tree["value"]).encode()
    return cls.model_validate_json(data)
