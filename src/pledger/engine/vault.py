"""Payloads on their way to the store and back: large ones in pieces, all of them through the codecs of the connection.

The engine has everything in plain; only what the store is given is sealed, and what it gives is opened
(`sealed_store`). A value is cut first, so that its pieces are the same wherever they are met; then each piece, and the
outline or the short value itself, goes through the codecs, the first of them first.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Container, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from pledger import errors
from pledger.engine.port.answers import Answer
from pledger.engine.port.operations import Operation
from pledger.engine.port.pieces import user_of
from pledger.engine.port.records import Piece
from pledger.history import pieces, sealing, transition
from pledger.history.events import Command, Input
from pledger.history.sealing import IN_PIECES, KeepsSecrets, NeedsOthers, PayloadCodec, Place

if TYPE_CHECKING:
    from pledger.machine.identity import RunIdentity

#: Runs of which it is remembered which pieces they have written: the others write them once more, which does no harm.
REMEMBERED_MAX: Final = 1_000

#: A payload as it is kept, and where.
Sealed: TypeAlias = tuple[bytes, Place]
#: Each in plain, or why it cannot be.
Opened: TypeAlias = "dict[Sealed, bytes | errors.PledgerError]"
Fetch: TypeAlias = Callable[[Sequence[bytes]], Awaitable[Mapping[bytes, bytes]]]


class Vault:
    """codecs: the first one is applied first when a payload is sealed.

    least: what is shorter needs no look at all: 0 with codecs. has_codecs: whether there are any. missing: keys that
    were asked for and are not there, or are others, by codec and id; with what there was in their place.
    """

    def __init__(self, codecs: Sequence[PayloadCodec] = ()) -> None:
        self.codecs = tuple(codecs)
        self.has_codecs = bool(self.codecs)
        self.least = 0 if self.codecs else pieces.LARGE + 1
        self._by_name = {codec.name: codec for codec in self.codecs}
        self.missing: dict[tuple[str, str], str] = {}
        self._written: OrderedDict[int, set[bytes]] = OrderedDict()

    # Sealing ----------------------------------------------------------------------------------------------------------

    def seal_transition(
        self,
        body: bytes,
        identity: RunIdentity,
        run_key: int,
        first_event_id: int,
        *,
        now_ms: int,
        code: str | None,
        inputs: Sequence[Input],
        commands: Sequence[Command],
        continues: bool,
        suggests: bool,
    ) -> tuple[bytes, Sequence[Piece]]:
        """The body as it is to be kept, and the pieces that the run has not written yet. body: in plain."""
        work = Sealing(self, self._written.get(run_key, ()))
        place, least = place_of(identity), self.least
        kept_inputs = sealing.map_events(inputs, first_event_id, place, work.seal, least)
        kept_commands = sealing.map_events(commands, first_event_id + len(inputs), place, work.seal, least)
        if not work.has_sealed:
            return body, ()
        body = transition.encode_parts(now_ms, code, kept_inputs, kept_commands, continues=continues, suggests=suggests)
        return body, work.pieces()

    def through_codecs(self, data: bytes, place: Place) -> bytes:
        try:
            for codec in self.codecs:
                done = codec.encode(data, place)
                if done is not None:
                    data = sealing.seal(codec.name, done)
        except errors.CodecError as error:
            raise self._told(error) from error.__cause__
        return data

    def namer(self, place: Place) -> Callable[[bytes], bytes]:
        """What names pieces by what is in them: with a secret of a codec, so that nobody without it can tell what that
        may be."""
        secret = b""
        for codec in self.codecs:
            if isinstance(codec, KeepsSecrets):
                secret += codec.secret(place)
        key = hashlib.blake2b(secret).digest() if secret else b""
        return lambda piece: hashlib.blake2b(piece, digest_size=pieces.NAME_BYTES, key=key).digest()

    def digest(self, digest: bytes, namespace: str, workflow_id: str) -> bytes:
        """Of the input of a start, as the ledger keeps it to tell the same input again."""
        for codec in self.codecs:
            if isinstance(codec, KeepsSecrets):
                secret = codec.digest_secret(Place(namespace, workflow_id, "", "digest"))
                digest = hashlib.blake2b(digest, digest_size=len(digest), key=secret).digest()
        return digest

    # Keys that are not there ------------------------------------------------------------------------------------------

    @property
    def lack(self) -> str:
        """Which keys this process was asked for and has not, in short; empty for none. Part of what a run is blocked
        by, so that it is tried again once they are back."""
        if not self.missing:
            return ""
        return "~" + hashlib.blake2b(repr(sorted(self.missing.items())).encode(), digest_size=4).hexdigest()

    def look_for_keys(self) -> None:
        """Whether what was missing is there, or is another one."""
        self.missing = {name: mark for name, mark in self.missing.items() if self._mark(*name) == mark}

    def _mark(self, codec_name: str, key_id: str) -> str:
        codec: object = self._by_name.get(codec_name)
        return codec.key_mark(key_id) if isinstance(codec, NeedsOthers) else ""

    def _told(self, error: errors.PledgerError) -> errors.PledgerError:
        if isinstance(error, errors.CodecError):
            name = error.codec, error.key_id or ""
            self.missing[name] = self._mark(*name)
        return error

    # What has been written --------------------------------------------------------------------------------------------

    def settled(self, batch: Sequence[Operation], answers: Sequence[Answer]) -> None:
        """The store has answered."""
        for operation, answer in zip(batch, answers, strict=True):
            if not operation.pieces:
                continue
            run_key = user_of(operation, answer)
            if run_key is None:
                self._written.pop(getattr(operation, "run_key", 0), None)
                continue
            self._written.setdefault(run_key, set()).update(piece.name for piece in operation.pieces)
            if len(self._written) > REMEMBERED_MAX:
                self._written.popitem(last=False)

    def forget_written(self) -> None:
        """What was written may be gone: the ledger may have lost its newest part."""
        self._written.clear()

    # Opening ----------------------------------------------------------------------------------------------------------

    async def open_all(self, sealed: Iterable[Sealed], fetch: Fetch) -> Opened:
        """Each in plain, or why it cannot be opened. fetch: gives pieces by their names. Raises what that raises."""
        opening = self._opening(sealed)
        try:
            names = next(opening)
            while True:
                names = opening.send(await fetch(names))
        except StopIteration as ended:
            found: Opened = ended.value
            return found

    def open_here(self, data: bytes, place: Place, bodies: Mapping[bytes, bytes]) -> bytes:
        """The same of one, with all pieces at hand. Raises why it cannot be opened."""
        opening = self._opening([(data, place)])
        try:
            next(opening)
            while True:
                opening.send(bodies)
        except StopIteration as ended:
            opened: bytes | errors.PledgerError = ended.value[data, place]
            if isinstance(opened, bytes):
                return opened
            raise opened from None

    def _opening(self, sealed: Iterable[Sealed]) -> Generator[Sequence[bytes], Mapping[bytes, bytes], Opened]:
        """Asks for pieces by their names, as often as it takes."""
        found: Opened = {}
        outlines: dict[Sealed, pieces.Outline] = {}
        for data, place in sealed:
            try:
                told = self._strip(data, place)
            except errors.PledgerError as error:
                found[data, place] = self._told(error)
            else:
                if isinstance(told, bytes):
                    found[data, place] = told
                else:
                    outlines[data, place] = told
        if outlines:
            gathered = yield from self._gather(outlines)
            for key, told in outlines.items():
                found[key] = _joined(told, gathered)
        return found

    def _strip(self, data: bytes, place: Place, undone: list[PayloadCodec] | None = None) -> bytes | pieces.Outline:
        """Undo what was done to it, the last first. undone: takes by whom that was."""
        while sealing.is_sealed(data):
            done, data = sealing.unseal(data)
            if done == IN_PIECES:
                return pieces.decode_outline(data)
            codec = self._by_name.get(done)
            if codec is None:
                raise errors.CodecError(
                    f"a payload was written with the codec {done!r}, which this process has not; it has "
                    f"{', '.join(self._by_name) or 'none'}. Give it to connect(codecs=[...]), wherever it stands there",
                    codec=done,
                )
            data = codec.decode(data, place)
            if undone is not None:
                undone.append(codec)
        return data

    def _gather(
        self, outlines: Mapping[Sealed, pieces.Outline]
    ) -> Generator[Sequence[bytes], Mapping[bytes, bytes], _Gathered]:
        """All that the outlines are made of."""
        gathered = _Gathered()
        wanted: dict[bytes, tuple[Place, bool]] = {}
        for (_, place), told in outlines.items():
            _want(wanted, told.entries, place)
        while wanted:
            bodies = yield sorted(wanted)
            asked, wanted = wanted, {}
            for name, (place, is_branch) in asked.items():
                gathered[name] = piece = self._piece(name, bodies.get(name), place)
                if is_branch and isinstance(piece, bytes):
                    _want(wanted, piece, place)
            wanted = {name: how for name, how in wanted.items() if name not in gathered}
        return gathered

    def _piece(self, name: bytes, body: bytes | None, place: Place) -> bytes | errors.PledgerError:
        if body is None:
            return errors.CorruptHistoryError(f"a piece of a payload is missing ({name.hex()[:12]})")
        undone: list[PayloadCodec] = []
        try:
            piece = self._strip(body, place_of_piece(name, place), undone)
        except errors.PledgerError as error:
            return self._told(error)
        # One that was encrypted has its name bound in; its key may not be the one that names are made with now.
        is_bound = any(isinstance(codec, KeepsSecrets) for codec in undone)
        if isinstance(piece, bytes) and (is_bound or _plain_name(piece) == name):
            return piece
        return errors.CorruptHistoryError(f"a piece of a payload is damaged ({name.hex()[:12]})")


def _plain_name(piece: bytes) -> bytes:
    return hashlib.blake2b(piece, digest_size=pieces.NAME_BYTES).digest()


class Sealing:
    """What is sealed together, for one operation. written: the names of pieces that are there already."""

    def __init__(self, vault: Vault, written: Container[bytes] = ()) -> None:
        self._vault = vault
        self._written = written
        self._pieces: dict[bytes, Piece] = {}
        self.has_sealed = False

    def seal(self, data: bytes, place: Place) -> bytes:
        vault = self._vault
        if len(data) > pieces.LARGE:
            told, made = pieces.outline(data, vault.namer(place))
            for name, piece in made.items():
                if name not in self._written and name not in self._pieces:
                    body = vault.through_codecs(piece, place_of_piece(name, place))
                    self._pieces[name] = Piece(name, body)
            data = sealing.seal(IN_PIECES, pieces.encode_outline(told))
        elif not vault.has_codecs:
            return data
        self.has_sealed = True
        return vault.through_codecs(data, place)

    def seal_whole(self, data: bytes, place: Place) -> bytes:
        """Without pieces, where nobody could write them."""
        return self._vault.through_codecs(data, place)

    def pieces(self) -> Sequence[Piece]:
        return tuple(self._pieces.values())


class _Gathered(dict[bytes, "bytes | errors.PledgerError"]):
    def __getitem__(self, name: bytes) -> bytes:
        piece = super().__getitem__(name)
        if isinstance(piece, bytes):
            return piece
        raise piece


def place_of(identity: RunIdentity) -> Place:
    return Place(identity.namespace, identity.workflow_id, identity.run_id, "")


def place_of_piece(name: bytes, place: Place) -> Place:
    """Pieces are the workflow id's, whatever runs it has: the next one may begin with what the last one ended with."""
    return Place(place.namespace, place.workflow_id, "", f"piece {name.hex()}")


def _want(wanted: dict[bytes, tuple[Place, bool]], entries: bytes, place: Place) -> None:
    try:
        found = pieces.read_entries(entries)
    except ValueError:
        return  # who joins them finds it too, and says so
    for entry in found:
        if entry.name is not None:
            wanted[entry.name] = place, entry.is_branch


def _joined(told: pieces.Outline, gathered: _Gathered) -> bytes | errors.PledgerError:
    try:
        return pieces.join(told, gathered)
    except errors.PledgerError as error:
        return error
    except (KeyError, ValueError) as error:
        return errors.CorruptHistoryError(f"the outline of a payload is damaged: {error}")
