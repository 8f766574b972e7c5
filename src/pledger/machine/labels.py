"""What a run says of itself: its search attributes and its memo, as its code reads and changes them.

The changes of one activation are one command of each kind: within a transition order carries no meaning, so what counts
is how they are when the code waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pledger.errors import UsageError
from pledger.history import attributes, memos
from pledger.history.attributes import AttributeRecord, SearchAttributeUpdate
from pledger.history.events import UpsertMemo, UpsertSearchAttributes

if TYPE_CHECKING:
    from pledger.history.events import Command
    from pledger.machine.context import Asked, RunContext


class Labels:
    """attributes, memo: as the code sees them now; the sealed ones: as they are recorded. asked_attributes, asked_memo:
    what was asked for in the running activation."""

    def __init__(
        self, context: RunContext, started: Iterable[AttributeRecord] = (), started_memo: bytes | None = None
    ) -> None:
        self._context = context
        self.sealed_attributes = attributes.merged({}, started)
        self.sealed_memo = memos.read(started_memo)
        self.attributes = dict(self.sealed_attributes)
        self.memo = dict(self.sealed_memo)
        self._asked_attributes: Asked | None = None
        self._asked_memo: Asked | None = None

    def upsert_attributes(self, updates: Iterable[SearchAttributeUpdate]) -> None:
        """Raises UsageError for what is no update, or for too many attributes."""
        self._context.check_may_ask()
        changes: dict[str, AttributeRecord] = {}
        given: object = updates
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise UsageError(
                f"{updates!r} changes no search attributes; give a list of key.value_set(value), or key.value_unset()"
            )
        for each in updates:
            if not isinstance(each, SearchAttributeUpdate):
                raise UsageError(
                    f"{each!r} changes no search attribute; give key.value_set(value), or key.value_unset()"
                )
            changes[each.record.name] = each.record
        if not changes:
            return
        after = attributes.merged(self.attributes, changes.values())
        attributes.check_number(len(after), str(self._context.identity))
        self.attributes = after
        if self._asked_attributes is None:
            self._asked_attributes = self._context.ask(UpsertSearchAttributes(_in_order(changes)))
        else:
            before = self._asked_attributes.command
            assert isinstance(before, UpsertSearchAttributes)
            changes = {each.name: each for each in before.attributes} | changes
            self._asked_attributes.command = UpsertSearchAttributes(_in_order(changes))

    def upsert_memo(self, memo: object) -> None:
        """Raises as `memos.encode`."""
        self._context.check_may_ask()
        what = f"the memo of {self._context.identity}"
        changes = memos.read(memos.encode(memo, what, self._context.payload_bytes_max, self.memo))
        if not changes:
            return
        self.memo = memos.merged(self.memo, changes)
        if self._asked_memo is None:
            self._asked_memo = self._context.ask(UpsertMemo(memos.written(changes)))
        else:
            before = self._asked_memo.command
            assert isinstance(before, UpsertMemo)
            self._asked_memo.command = UpsertMemo(memos.written(memos.read(before.memo) | changes))

    def seal(self, commands: Sequence[Command], *, continues: bool) -> None:
        """The transition is made, or was recorded so: the record counts. continues: some of what was asked for is in
        none yet."""
        self._asked_attributes = self._asked_memo = None
        for command in commands:
            if type(command) is UpsertSearchAttributes:
                self.sealed_attributes = attributes.merged(self.sealed_attributes, command.attributes)
            elif type(command) is UpsertMemo:
                self.sealed_memo = memos.merged(self.sealed_memo, memos.read(command.memo))
        if not continues:
            self.attributes, self.memo = dict(self.sealed_attributes), dict(self.sealed_memo)


def labels_of(context: RunContext) -> Labels:
    """Made when first asked for: most runs have none."""
    if context.labels is None:
        context.labels = Labels(context)
    return context.labels


def records(context: RunContext) -> tuple[AttributeRecord, ...]:
    """The search attributes that the run has now."""
    return () if context.labels is None else tuple(context.labels.attributes.values())


def memo_values(context: RunContext) -> dict[str, Any]:
    return {} if context.labels is None else memos.values(context.labels.memo)


def memo_of(context: RunContext) -> dict[str, bytes]:
    """The JSON of each value."""
    return {} if context.labels is None else context.labels.memo


def _in_order(changes: dict[str, AttributeRecord]) -> tuple[AttributeRecord, ...]:
    return tuple(changes[name] for name in sorted(changes))
