"""`pledger history`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec

from pledger.cli import options, words
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import Output
from pledger.client import History
from pledger.history.view import HistoryEvent
from pledger.ops.archived import find_archived

#: Characters of attributes that are shown however narrow the terminal is.
_ATTRIBUTES_MIN: Final = 20


def history(
    workflow_id: options.WorkflowId,
    *,
    run_id: options.RunId = None,
    archive: options.Archive = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """The events of a run, as recorded. With --json in the form that `pledger replay` reads.

    Of a damaged history, what stands before the damage. With --archive, of what was exported.
    """
    output = Output(as_json=as_json)

    async def read() -> History:
        if archive is not None:
            return find_archived(archive, workflow_id, run_id, now=datetime.now(UTC)).history
        async with opened(url, namespace) as client:
            return await (await find_run(client, workflow_id, run_id)).history(until_damage=True)

    found = asyncio.run(read())
    if as_json:
        output.raw(found.export().decode())
    else:
        for line in _lines(found.events, output.line_chars_max):
            output.raw(line)
    if found.damage is not None:
        output.error(found.damage)
        return Exit.STORE
    return Exit.OK


def _lines(events: list[HistoryEvent], line: int) -> Iterable[str]:
    """A line for each event, none longer than `line`. The date of a run of one day is in the header."""
    # Not a Rich table, which needs half a minute to lay out what a long run has done.
    times = [each.time.astimezone() for each in events]
    is_one_day = len({time.date() for time in times}) == 1
    time_header = f"{times[0]:%Y-%m-%d}" if is_one_day else "TIME"
    time_format = "%H:%M:%S.%f" if is_one_day else "%Y-%m-%d %H:%M:%S.%f"
    time_width = len("18:40:12.345" if is_one_day else "2026-11-29 18:40:12.345")
    types = max((len(each.type) for each in events), default=0)
    numbers = max(len("EVENT"), len(str(len(events))))
    yield f"{'EVENT':>{numbers}}  {time_header:{time_width}}  {'TYPE':{types}}  ATTRIBUTES"
    for each, time in zip(events, times, strict=True):
        begin = f"{each.event_id:>{numbers}}  {time.strftime(time_format)[:-3]}  {each.type:{types}}  "
        room = max(_ATTRIBUTES_MIN, line - len(begin))
        yield begin + words.preview(msgspec.json.encode(each.attributes), room)
