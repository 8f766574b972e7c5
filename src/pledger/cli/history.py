"""`pledger history`."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from pledger.cli import options, words
from pledger.cli.exits import Exit
from pledger.cli.ledger import find_run, opened
from pledger.cli.output import Output
from pledger.client import History
from pledger.history.view import HistoryEvent

#: Events laid out in one table: columns keep their widths within it, and a history of any length shows at once.
_PAGE: Final = 1_000


def history(
    workflow_id: options.WorkflowId,
    *,
    run_id: options.RunId = None,
    url: options.Url = options.DEFAULT_URL,
    namespace: options.Namespace = "default",
    as_json: options.Json = False,
) -> int:
    """The events of a run, as recorded. With --json in the form that `pledger replay` reads.

    Of a damaged history, what stands before the damage.
    """
    output = Output(as_json=as_json)

    async def read() -> History:
        async with opened(url, namespace) as client:
            return await (await find_run(client, workflow_id, run_id)).history(until_damage=True)

    found = asyncio.run(read())
    if as_json:
        output.text(found.export().decode())
    else:
        _show(output, found.events)
    if found.damage is not None:
        output.error(found.damage)
        return Exit.STORE
    return Exit.OK


def _show(output: Output, events: list[HistoryEvent]) -> None:
    for begin in range(0, len(events), _PAGE):
        table = output.table("EVENT", "TIME", "TYPE", "ATTRIBUTES", right=("EVENT",))
        for each in events[begin : begin + _PAGE]:
            attributes = msgspec.json.encode(each.attributes)
            table.add_row(
                str(each.event_id),
                f"{each.time.astimezone():%Y-%m-%d %H:%M:%S.%f}"[:-3],
                each.type,
                words.preview(attributes, output.line_chars_max),
            )
        output.print(table)
