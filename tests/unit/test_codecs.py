"""The codecs by themselves: what they write, what they refuse to read, and what they are refused."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path

import pytest

from pledger import errors
from pledger.codecs import DECOMPRESSED_MAX, AesGcm, KeyRing, Offload, Place, Zstd
from pledger.history.sealing import check_codecs

HERE = Place("default", "order-1", "R1", "2.args")
KEY, OTHER = bytes(32), bytes(range(32))
ELSEWHERE = [
    HERE._replace(namespace="other"),
    HERE._replace(workflow_id="order-2"),
    HERE._replace(run_id="R2"),
    HERE.at("3.args"),
    Place("default", "order-1R", "1", "2.args"),
]


def test_zstd_makes_it_smaller_or_leaves_it() -> None:
    codec = Zstd()
    text = b"as was said before. " * 100
    done = codec.encode(text, HERE)
    assert done is not None
    assert len(done) < len(text) / 10
    assert codec.decode(done, HERE) == text
    assert codec.encode(b"short", HERE) is None
    assert codec.encode(bytes(itertools.islice(itertools.cycle(range(256)), 256)), HERE) is None


def test_a_few_bytes_do_not_become_gigabytes() -> None:
    codec = Zstd()
    assert codec.encode(bytes(DECOMPRESSED_MAX + 1), HERE) is None, "it writes nothing that it would not read"
    zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    bomb = zstd.compress(bytes(DECOMPRESSED_MAX + 1))
    assert len(bomb) < 10_000
    with pytest.raises(errors.CodecError, match="more than 67,108,864 bytes"):
        codec.decode(bomb, HERE)
    with pytest.raises(errors.CodecError, match="cannot be decompressed"):
        codec.decode(b"no zstd at all, certainly", HERE)
    with pytest.raises(errors.CodecError, match="cut off"):
        codec.decode(bomb[:20], HERE)


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_what_is_moved_elsewhere_does_not_open(elsewhere: Place) -> None:
    codec = AesGcm(KeyRing({"k1": KEY}))
    done = codec.encode(b'"secret"', HERE)
    assert done is not None
    assert codec.decode(done, HERE) == b'"secret"'
    with pytest.raises(errors.CodecError, match="does not open") as refused:
        codec.decode(done, elsewhere)
    assert refused.value.key_id == "k1"


def test_a_byte_that_is_changed_is_found_wherever_it_is() -> None:
    codec = AesGcm(KeyRing({"k1": KEY, "k2": OTHER}, current="k1"))
    done = codec.encode(b'"secret"', HERE)
    assert done is not None
    for at in range(len(done)):
        changed = done[:at] + bytes((done[at] ^ 1,)) + done[at + 1 :]
        with pytest.raises(errors.CodecError):
            codec.decode(changed, HERE)
        with pytest.raises(errors.CodecError):
            codec.decode(done[:at], HERE)


def test_no_two_payloads_are_written_alike() -> None:
    codec = AesGcm(KeyRing({"k1": KEY}))
    assert len({codec.encode(b"[1]", HERE) for _ in range(50)}) == 50


def test_what_names_pieces_and_digests_is_of_one_workflow_id_and_one_key() -> None:
    one, other = AesGcm(KeyRing({"k": KEY})), AesGcm(KeyRing({"k": OTHER}))
    assert one.secret(HERE) == one.secret(HERE._replace(run_id="R2", position="9.result"))
    found = {codec.secret(place) for codec in (one, other) for place in (HERE, HERE._replace(workflow_id="order-2"))}
    assert len(found) == 4
    assert one.secret(HERE) != one.digest_secret(HERE)
    rotated = AesGcm(KeyRing({"k": KEY, "k2": OTHER}), digest_key=b"d" * 32)
    assert rotated.digest_secret(HERE) == AesGcm(KeyRing({"k": KEY}), digest_key=b"d" * 32).digest_secret(HERE)
    assert one.key_mark("k") != other.key_mark("k")
    assert one.key_mark("none") == ""


def test_what_is_kept_elsewhere_is_told_by_a_hash_that_is_verified(tmp_path: Path) -> None:
    codec = Offload(tmp_path.as_uri())
    text = b"as was said before. " * 100
    reference = codec.encode(text, HERE)
    assert reference is not None
    assert len(reference) == 32
    assert codec.encode(text, HERE.at("9.result")) == reference, "once for each workflow id"
    assert codec.encode(b"short", HERE) is None
    [kept] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept.parent.name == "order-1"
    assert codec.decode(reference, HERE) == text
    kept.write_bytes(text[:-1])
    with pytest.raises(errors.CodecError, match="was changed, or cut off") as changed:
        codec.decode(reference, HERE)
    before = codec.key_mark(str(changed.value.key_id))
    assert codec.encode(text, HERE) == reference, "and is whole again, since its length was not"
    assert codec.key_mark(str(changed.value.key_id)) != before
    assert codec.decode(reference, HERE) == text
    kept.unlink()
    with pytest.raises(errors.CodecError, match="is not there") as gone:
        codec.decode(reference, HERE)
    assert codec.key_mark(str(gone.value.key_id)) == "nothing"


@pytest.mark.parametrize("workflow_id", ["..", ".", "a/../../b", "/etc"])
def test_no_workflow_id_leads_out_of_the_folder(tmp_path: Path, workflow_id: str) -> None:
    (tmp_path / "in").mkdir()
    codec = Offload((tmp_path / "in").as_uri())
    place = HERE._replace(workflow_id=workflow_id)
    reference = codec.encode(bytes(2_000), place)
    assert reference is not None
    assert [path.parent.parent.parent.name for path in tmp_path.rglob("*") if path.is_file()] == ["in"]
    assert codec.decode(reference, place) == bytes(2_000)


def test_a_store_that_is_away_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    codec = Offload((tmp_path / "file").as_uri())
    with pytest.raises(errors.CodecError, match="cannot be reached") as away:
        codec.encode(bytes(2_000), HERE)
    before = codec.key_mark(str(away.value.key_id))
    (tmp_path / "file").unlink()
    assert codec.key_mark(str(away.value.key_id)) != before
    with pytest.raises(errors.UsageError, match="knows no such store"):
        Offload("nosuch://bucket")
    with pytest.raises(errors.InvalidPolicyError, match="at least 32"):
        Offload(tmp_path.as_uri(), at_least=1)


class _Nameless:
    def encode(self, data: bytes, place: Place) -> bytes | None: ...
    def decode(self, data: bytes, place: Place) -> bytes: ...


class _Mute:
    name = "mute"


@pytest.mark.parametrize(
    ("chain", "says"),
    [
        ([_Nameless()], "no codec"),
        ([_Mute()], "must have `encode` and `decode`"),
        ([Zstd(), Zstd()], "two of one name"),
        (["zstd"], "no codec"),
    ],
)
def test_what_is_no_chain_is_refused_at_once(chain: list[object], says: str) -> None:
    with pytest.raises(errors.UsageError, match=says):
        check_codecs(chain)  # type: ignore[arg-type]


def test_keys_are_refused_that_are_none() -> None:
    for keys, says in [({}, "no keys"), ({"k": b"short"}, "16, 24 or 32"), ({"": KEY}, "1 to 200 bytes")]:
        with pytest.raises(errors.UsageError, match=says):
            KeyRing(keys)
    with pytest.raises(errors.UsageError, match="none of its keys: k1"):
        KeyRing({"k1": KEY}, current="k2")
    with pytest.raises(errors.InvalidPolicyError, match="from 1 to 22"):
        Zstd(0)
