"""Handlers that the code of a run sets as it goes. A part of `pledger.workflow`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pledger.history.names import check_id
from pledger.machine.context import required
from pledger.machine.handlers import Handler, HandlerUnfinishedPolicy, Kind, set_later
from pledger.machine.updates import CURRENT_UPDATE


def set_signal_handler(
    name: str,
    handler: Callable[..., Any] | None,
    *,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
) -> None:
    """Have a function take a signal from now on, in place of whoever takes it; None: nobody does.

    Signals that came before, and that nobody has taken, are handed to it at once, in the order in which they came.
    """
    _set("signal", check_id(name, "the name of a signal"), handler, unfinished_policy=unfinished_policy)


def set_dynamic_signal_handler(
    handler: Callable[[str, Sequence[Any]], Any] | None,
    *,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
) -> None:
    """The same for every signal that no other handler takes: called with its name and all its arguments."""
    _set("signal", None, handler, unfinished_policy=unfinished_policy)


def set_query_handler(name: str, handler: Callable[..., Any] | None) -> None:
    """Have a plain function answer a query from now on; None: nobody does."""
    _set("query", check_id(name, "the name of a query"), handler)


def set_dynamic_query_handler(handler: Callable[[str, Sequence[Any]], Any] | None) -> None:
    """The same for every query that no other handler answers."""
    _set("query", None, handler)


def set_update_handler(
    name: str,
    handler: Callable[..., Any] | None,
    *,
    validator: Callable[..., None] | None = None,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
) -> None:
    """Have a function take an update from now on; None: nobody does. validator: who lets it through."""
    known = check_id(name, "the name of an update")
    _set("update", known, handler, validator=validator, unfinished_policy=unfinished_policy)


def set_dynamic_update_handler(
    handler: Callable[[str, Sequence[Any]], Any] | None,
    *,
    validator: Callable[[str, Sequence[Any]], None] | None = None,
    unfinished_policy: HandlerUnfinishedPolicy = HandlerUnfinishedPolicy.WARN_AND_ABANDON,
) -> None:
    """The same for every update that no other handler takes."""
    _set("update", None, handler, validator=validator, unfinished_policy=unfinished_policy)


def _set(kind: Kind, name: str | None, handler: Callable[..., Any] | None, **options: Any) -> None:
    context = required(f"workflow.set_{'dynamic_' if name is None else ''}{kind}_handler")
    context.check_may_ask()
    context.set_handler(kind, name, None if handler is None else set_later(kind, name, handler, **options))


def get_signal_handler(name: str) -> Callable[..., Any] | None:
    """Who takes the signal of this name, a dynamic handler apart; None where nobody does."""
    return _get("signal", name)


def get_dynamic_signal_handler() -> Callable[..., Any] | None:
    return _get("signal", None)


def get_query_handler(name: str) -> Callable[..., Any] | None:
    """As `get_signal_handler`, of queries."""
    return _get("query", name)


def get_dynamic_query_handler() -> Callable[..., Any] | None:
    return _get("query", None)


def get_update_handler(name: str) -> Callable[..., Any] | None:
    """As `get_signal_handler`, of updates."""
    return _get("update", name)


def get_dynamic_update_handler() -> Callable[..., Any] | None:
    return _get("update", None)


def _get(kind: Kind, name: str | None) -> Callable[..., Any] | None:
    context = required(f"workflow.get_{'dynamic_' if name is None else ''}{kind}_handler")
    found: Handler | None = context.handler(kind, name)
    return None if found is None or context.machine is None else found.bound(context.machine.instance)


@dataclass(frozen=True, slots=True)
class UpdateInfo:
    """id: that of whoever has sent the update. name: of the update."""

    id: str
    name: str


def current_update_info() -> UpdateInfo | None:
    """Of the update whose handler, or whose validator, is running; None elsewhere."""
    required("workflow.current_update_info")
    found = CURRENT_UPDATE.get()
    return None if found is None else UpdateInfo(found.update_id, found.name)
