"""Updates as a store keeps them until they are in a history: as questions to the owner of a run, and beside a start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from pledger.engine.port.operations import FirstMessage
from pledger.engine.updating import Told
from pledger.history.events import UpdateAccepted

if TYPE_CHECKING:
    from pledger.engine.port.records import Request

#: The kind of such a question.
UPDATE: Final = "update"
#: The signal that an update beside a start is to workers that know of none: one that no workflow has.
BESIDE_START: Final = "pledger:update"
#: No query of a user's has it before its name: a worker that takes every question for a query knows none of that name.
_NAME: Final = "pledger:update "

_decode_asked = msgspec.json.Decoder(tuple[str, msgspec.Raw]).decode
_decode_beside = msgspec.json.Decoder(tuple[str, str, msgspec.Raw]).decode
_decode_told = msgspec.msgpack.Decoder(Told).decode
_encode_told = msgspec.msgpack.Encoder().encode


def question(update: UpdateAccepted) -> tuple[str, bytes]:
    """(name, body) of the row."""
    return _NAME + update.name, msgspec.json.encode((update.update_id, msgspec.Raw(update.args)))


def read_question(request: Request) -> UpdateAccepted:
    """Raises msgspec.MsgspecError for one that is damaged."""
    update_id, args = _decode_asked(request.body)
    return UpdateAccepted(request.name.removeprefix(_NAME), bytes(args), update_id)


def beside_start(update: UpdateAccepted) -> FirstMessage:
    body = msgspec.json.encode((update.update_id, update.name, msgspec.Raw(update.args)))
    return FirstMessage(f"{BESIDE_START} {update.update_id}", BESIDE_START, body, keep_id=False)


def read_beside_start(body: bytes) -> UpdateAccepted:
    """Raises msgspec.MsgspecError for one that is damaged."""
    update_id, name, args = _decode_beside(body)
    return UpdateAccepted(name, bytes(args), update_id)


def answer_of(told: Told) -> bytes:
    return _encode_told(told)


def read_answer(body: bytes) -> Told:
    return _decode_told(body)
