"""Mail is read in rounds, each of which ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pledger.engine.mail import MailReader


def reader_of(read_mail: Callable[[list[int]], Awaitable[list[Any]]]) -> MailReader:
    """With mail for 250 runs that are all here."""

    def active(run_key: int) -> Any:
        return SimpleNamespace(run_key=run_key, gone=False, forget_delivered=lambda: None)

    runs = SimpleNamespace(active=SimpleNamespace(get=active))
    store = SimpleNamespace(read_mail=read_mail)
    reader = MailReader(cast("Any", store), cast("Any", runs), asyncio.get_running_loop(), wake=lambda: None)
    reader.unread.update(range(250))
    return reader


def test_mail_without_end_does_not_keep_the_worker_from_all_else() -> None:
    async def play() -> None:
        asked: list[int] = []

        async def read_mail(run_keys: list[int]) -> list[Any]:
            asked.extend(run_keys)
            reader.unread.update(key + 1_000 for key in run_keys)  # it comes while the store is asked
            if len(asked) > 1_000:
                raise AssertionError
            return []

        reader = reader_of(read_mail)
        await reader.read()
        assert sorted(asked) == list(range(250))
        assert sorted(reader.unread) == list(range(1_000, 1_250))

    asyncio.run(play())


def test_what_could_not_be_read_is_read_in_the_next_round() -> None:
    async def play() -> None:
        async def read_mail(_: list[int]) -> list[Any]:
            raise OSError

        reader = reader_of(read_mail)
        with pytest.raises(OSError):  # noqa: PT011 - the very one
            await reader.read()
        assert sorted(reader.unread) == list(range(250))

    asyncio.run(play())
