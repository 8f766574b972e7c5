"""The workflow whose history holds pydantic models: what it asks for hangs on what their JSON alone does not tell."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pydantic

from pledger import activity, workflow


class Guest(pydantic.BaseModel):
    name: str
    diet: str | None = None


class Booking(pydantic.BaseModel):
    at: datetime
    guests: list[Guest] = []
    tags: frozenset[str] = frozenset()
    note: str | None = None


class Change(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    note: str | None = None
    at: datetime | None = None
    tags: frozenset[str] | None = None


#: The day before the clock goes back.
BOOKING = Booking(
    at=datetime(2031, 10, 25, 19, tzinfo=ZoneInfo("Europe/Berlin")),
    guests=[Guest(name="ann"), Guest(name="bob", diet=None)],
    tags=frozenset({"window", "birthday"}),
)


@activity.defn
async def ask_guest(guest: Guest) -> Guest:
    return guest if "diet" in guest.model_fields_set else guest.model_copy(update={"diet": "any"})


@activity.defn
async def change(booking: Booking, change: Change | None) -> Booking:
    return booking if change is None else booking.model_copy(update=change.model_dump(exclude_unset=True))


@workflow.defn
async def model_payloads(booking: Booking) -> Booking:
    """Asks those guests of whom nothing was said, and moves the booking to the same time of the next day."""
    for guest in booking.guests:
        if "diet" not in guest.model_fields_set:
            await ask_guest(guest)
    if "note" not in booking.model_fields_set:
        booking = await change(booking, Change(note=None))
    if "note" in booking.model_fields_set:
        tomorrow = booking.at + timedelta(days=1)
        booking = await change(booking, Change(at=tomorrow, tags=frozenset({str(tomorrow.utcoffset())})))
    return booking
