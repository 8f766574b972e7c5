"""Codecs: what is done to payloads on their way to the ledger, and undone on their way back.

    connect(url, codecs=[Zstd(), AesGcm(KeyRing({"2026-11": key}))])

The first one is applied first when a value is written, so compress before you encrypt. What it has written says which
codec wrote it: a codec may be added to the chain, or taken out of it once nothing is left that it wrote, and what is
there stays readable. A codec of your own is a class with `name`, `encode` and `decode` (`PayloadCodec`).

`zstd`, `encryption` and `offload` are extras: pip install 'pledger[zstd,encryption,offload]'.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from pledger.errors import CodecError, InvalidPolicyError, UsageError
from pledger.history.sealing import PayloadCodec, Place

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["AesGcm", "KeyProvider", "KeyRing", "Offload", "PayloadCodec", "Place", "Zstd"]

#: What one payload may be decompressed to: a few bytes can be made to stand for gigabytes.
DECOMPRESSED_MAX: Final = 64 * 1024 * 1024
_KEY_BYTES: Final = (16, 24, 32)
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_ID_MAX: Final = 200
_HASH_BYTES: Final = 32


class Zstd:
    """Zstandard. level: 1 to 22, higher is smaller and slower. at_least: bytes from which on it is tried; what does not
    become smaller is left as it is."""

    name = "zstd"

    def __init__(self, level: int = 3, *, at_least: int = 256) -> None:
        if not 1 <= level <= 22:  # noqa: PLR2004 - the library's own
            raise InvalidPolicyError(f"Zstd(level={level!r}) must be from 1 to 22")
        self._zstd = _library("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "zstd")
        self._level = level
        self._at_least = at_least

    def encode(self, data: bytes, place: Place) -> bytes | None:  # noqa: ARG002 - the protocol's
        if not self._at_least <= len(data) <= DECOMPRESSED_MAX:  # what is longer could never be read again
            return None
        done: bytes = self._zstd.compress(data, level=self._level)
        return done if len(done) < len(data) else None

    def decode(self, data: bytes, place: Place) -> bytes:
        decompressor = self._zstd.ZstdDecompressor()
        try:
            done: bytes = decompressor.decompress(data, max_length=DECOMPRESSED_MAX)
        except self._zstd.ZstdError as error:
            raise CodecError(f"a payload of {_where(place)} cannot be decompressed: {error}", codec=self.name) from None
        if not decompressor.eof:
            raise CodecError(
                f"a payload of {_where(place)} is cut off, or has more than {DECOMPRESSED_MAX:,} bytes", codec=self.name
            )
        return done


class KeyProvider(Protocol):
    """Where keys are. Asked on the worker's own loop, for every payload: one that asks a service keeps what it
    heard."""

    def key_id(self, place: Place) -> str:
        """Of the key that what is written there now is encrypted with: by tenant, or by person, as you like."""
        ...

    def key(self, key_id: str) -> bytes:
        """16, 24 or 32 bytes. Raises KeyError for one that is not there (any more)."""
        ...


class KeyRing:
    """Keys at hand, by their ids.

    current: the id of the one to encrypt with, or what gives it for a place; by default the last one. To rotate, add a
    key and make it current: what is there stays readable as long as its key is on the ring. To erase what a key alone
    can read, take the key off every ring, and out of wherever they come from."""

    def __init__(self, keys: Mapping[str, bytes], *, current: str | Callable[[Place], str] | None = None) -> None:
        if not keys:
            raise UsageError("KeyRing({}) has no keys")
        for key_id, key in keys.items():
            _check_key(key_id, key)
        self._keys = dict(keys)
        self._current = next(reversed(self._keys)) if current is None else current
        if isinstance(self._current, str) and self._current not in self._keys:
            raise UsageError(f"KeyRing(current={self._current!r}) is none of its keys: {', '.join(self._keys)}")

    def key_id(self, place: Place) -> str:
        return self._current if isinstance(self._current, str) else self._current(place)

    def key(self, key_id: str) -> bytes:
        return self._keys[key_id]


class AesGcm:
    """AES-GCM, by keys that have ids. keys: a KeyRing, or another KeyProvider.

    Each workflow id has a key of its own, derived from that of the provider, and each payload a nonce. Where it stands
    is bound in: namespace, workflow id, run id and position, so that what is moved elsewhere does not open.
    digest_key: for the digests by which a start tells the same input again; one for all, since they outlive rotation.
    """

    name = "aes-gcm"

    def __init__(
        self, keys: KeyProvider, *, digest_key: bytes | None = None, entropy: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._aesgcm: type[AESGCM] = _library("cryptography.hazmat.primitives.ciphers.aead", "encryption").AESGCM
        self._keys = keys
        self._digest_key = digest_key
        self._entropy = entropy

    def encode(self, data: bytes, place: Place) -> bytes | None:
        key_id = self._keys.key_id(place)
        nonce = self._entropy(_NONCE_BYTES)
        told = key_id.encode()
        done = self._cipher(key_id, place).encrypt(nonce, data, _bound(told, place))
        return bytes((len(told),)) + told + nonce + done

    def decode(self, data: bytes, place: Place) -> bytes:
        end = 1 + data[0] if data else 0
        told, nonce, done = data[1:end], data[end : end + _NONCE_BYTES], data[end + _NONCE_BYTES :]
        if len(done) < _TAG_BYTES:
            raise CodecError(f"an encrypted payload of {_where(place)} is cut off", codec=self.name)
        key_id = told.decode("utf-8", "replace")
        cipher = self._cipher(key_id, place)
        try:
            return cipher.decrypt(nonce, done, _bound(told, place))
        except Exception as error:
            if type(error).__name__ != "InvalidTag":
                raise
            raise CodecError(
                f"a payload of {_where(place)} does not open with the key {key_id!r}: it is another key by that id, "
                "or the payload was changed, or stood elsewhere",
                codec=self.name,
                key_id=key_id,
            ) from None

    def secret(self, place: Place) -> bytes:
        """From which the names of pieces are made, so that they tell nothing of what is in them; of a workflow id."""
        return self._derived("names of pieces", self._key(self._keys.key_id(place), place), place)

    def digest_secret(self, place: Place) -> bytes:
        """The same for the digest of an input."""
        key = self._key(self._keys.key_id(place), place) if self._digest_key is None else self._digest_key
        return self._derived("digests of inputs", key, place)

    def key_mark(self, key_id: str) -> str:
        """Of the key that there is by that id now; empty for none."""
        try:
            key = self._keys.key(key_id)
        except KeyError:
            return ""
        return hashlib.blake2b(key, digest_size=4, person=b"pledger mark").hexdigest()

    def _cipher(self, key_id: str, place: Place) -> AESGCM:
        # A key for each workflow id: nonces that are drawn may meet after some billions of payloads under one key.
        return self._aesgcm(self._derived("payloads", self._key(key_id, place), place))

    def _key(self, key_id: str, place: Place) -> bytes:
        try:
            key = self._keys.key(key_id)
        except KeyError:
            raise CodecError(
                f"the key {key_id!r} is not there, which a payload of {_where(place)} needs. When it is back, runs "
                "that wait for it go on; if it was erased on purpose, so was what it alone can open",
                codec=self.name,
                key_id=key_id,
            ) from None
        _check_key(key_id, key)
        return key

    @staticmethod
    def _derived(purpose: str, key: bytes, place: Place) -> bytes:
        told = b"\0".join((purpose.encode(), place.namespace.encode(), place.workflow_id.encode()))
        return hashlib.blake2b(told, key=key, digest_size=32, person=b"pledger aes-gcm").digest()


class Offload:
    """What is long is kept in a store of any kind that fsspec knows, and the ledger has a reference to it.

    url: of a folder there, like "s3://bucket/payloads" or "file:///srv/payloads"; options: for the store, as
    `fsspec.url_to_fs` takes them. at_least: bytes from which on a payload, or a piece of one, is kept there.

    The last one of a chain: what it keeps has been compressed and encrypted. It is kept before the ledger refers to it,
    in a folder for each workflow id, by a hash that is verified when it is read. A worker waits for the store while it
    writes and reads, so have it near.
    """

    name = "offload"

    def __init__(self, url: str, *, at_least: int = 1024, **options: Any) -> None:
        if at_least < _HASH_BYTES:
            raise InvalidPolicyError(
                f"Offload(at_least={at_least!r}) must be at least {_HASH_BYTES}, as a reference has"
            )
        try:
            self._store, root = _library("fsspec", "offload").url_to_fs(url, **options)
        except (ImportError, ValueError) as error:
            raise UsageError(f"Offload({url!r}) knows no such store: {error}") from error
        self._root = root.rstrip("/")
        self._at_least = at_least

    def encode(self, data: bytes, place: Place) -> bytes | None:
        if len(data) < self._at_least:
            return None
        digest = hashlib.blake2b(data, digest_size=_HASH_BYTES).digest()
        path = self._path(place, digest)
        try:
            if not self._is_whole(path, len(data)):
                self._store.makedirs(path.rpartition("/")[0], exist_ok=True)
                # Under a name of its own first: whoever reads the other one finds all of it.
                made = f"{path}.{os.urandom(6).hex()}"
                self._store.pipe_file(made, data)
                self._store.mv(made, path)
        except Exception as error:
            raise self._away(path, place, error) from error
        return digest

    def decode(self, data: bytes, place: Place) -> bytes:
        path = self._path(place, data)
        try:
            found: bytes = self._store.cat_file(path)
        except FileNotFoundError as error:
            raise CodecError(
                f"{path} is not there, where a payload of {_where(place)} is kept. Runs that wait for it go on when it "
                "is back; if it was removed on purpose, so was what it held",
                codec=self.name,
                key_id=path,
            ) from error
        except Exception as error:
            raise self._away(path, place, error) from error
        if hashlib.blake2b(found, digest_size=_HASH_BYTES).digest() != data:
            raise CodecError(
                f"{path} is not what a payload of {_where(place)} was: it was changed, or cut off",
                codec=self.name,
                key_id=path,
            )
        return found

    def key_mark(self, key_id: str) -> str:
        """Of what there is now at such a path: nobody knows, nothing, or which content."""
        try:
            return hashlib.blake2b(self._store.cat_file(key_id), digest_size=4).hexdigest()
        except FileNotFoundError:
            return "nothing"
        except Exception:  # noqa: BLE001 - of whichever store it is
            return ""

    def _path(self, place: Place, digest: bytes) -> str:
        return "/".join((self._root, _quoted(place.namespace), _quoted(place.workflow_id), digest.hex()))

    def _is_whole(self, path: str, size: int) -> bool:
        try:
            return bool(self._store.size(path) == size)
        except FileNotFoundError:
            return False

    def _away(self, path: str, place: Place, error: Exception) -> CodecError:
        return CodecError(
            f"{path} cannot be reached, for a payload of {_where(place)}: {type(error).__name__}: {error}",
            codec=self.name,
            key_id=path,
        )


def _quoted(name: str) -> str:
    """As one part of a path, and never one that leads elsewhere."""
    return urllib.parse.quote(name, safe="").replace(".", "%2E")


def _bound(key_id: bytes, place: Place) -> bytes:
    """What is authenticated beside the payload; each with its length, so that no two places are told alike."""
    parts = (b"1", key_id, *(part.encode() for part in place))
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _check_key(key_id: str, key: bytes) -> None:
    if not 1 <= len(key_id.encode()) <= _KEY_ID_MAX:
        raise UsageError(f"the id of a key must have 1 to {_KEY_ID_MAX} bytes; it stands in the ledger, in plain")
    if len(key) not in _KEY_BYTES:
        raise UsageError(f"the key {key_id!r} must be 16, 24 or 32 bytes, like secrets.token_bytes(32)")


def _where(place: Place) -> str:
    return f"workflow {place.workflow_id!r} ({place.position})"


def _library(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"this codec needs {module.partition('.')[0]} ({error}): pip install 'pledger[{extra}]'"
        ) from error
