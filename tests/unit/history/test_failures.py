"""Failures on their way into the ledger and back: type, message, details, cause chain and traceback survive."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from pledger import errors
from pledger.history import failures
from pledger.history.failures import CAUSES_MAX, TEXT_MAX, Failure


def through_the_ledger(error: BaseException) -> errors.FailureError | errors.CancelledError:
    return failures.to_exception(failures.decode(msgspec.msgpack.encode(failures.from_exception(error))))


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - given back
        return caught


def test_an_application_error_comes_back_as_it_was() -> None:
    error = errors.ApplicationError(
        "declined", {"code": 51}, [1, 2], type="CardDeclined", non_retryable=True, next_retry_delay=timedelta(seconds=7)
    )
    back = through_the_ledger(error)
    assert isinstance(back, errors.ApplicationError)
    assert (back.message, back.type, back.details) == ("declined", "CardDeclined", ({"code": 51}, [1, 2]))
    assert (back.non_retryable, back.next_retry_delay) == (True, timedelta(seconds=7))
    assert str(back) == "CardDeclined: declined"
    assert back.category is errors.ApplicationErrorCategory.UNSPECIFIED


def test_a_benign_error_comes_back_as_one_also_as_a_cause() -> None:
    error = errors.ActivityError("", activity_type="poll", scheduled_event_id=2, attempt=9, retry_state="timeout")
    error.__cause__ = errors.ApplicationError("not yet", category=errors.ApplicationErrorCategory.BENIGN)
    back = through_the_ledger(error).__cause__
    assert isinstance(back, errors.ApplicationError)
    assert back.category is errors.ApplicationErrorCategory.BENIGN
    assert not failures.is_benign(failures.from_exception(error))
    assert not failures.is_benign(failures.from_exception(odd(category="benign")))


def test_a_subclass_of_ours_keeps_its_name_as_type() -> None:
    class CardDeclined(errors.ApplicationError):
        pass

    back = through_the_ledger(CardDeclined("51"))
    assert isinstance(back, errors.ApplicationError)
    assert back.type == "CardDeclined"


def test_any_other_exception_comes_back_as_an_application_error_of_its_name() -> None:
    back = through_the_ledger(raised(KeyError("missing")))
    assert isinstance(back, errors.ApplicationError)
    assert (back.type, back.message) == ("KeyError", "'missing'")
    assert "raise error" in back.remote_traceback
    assert "KeyError: 'missing'" in back.remote_traceback


def test_a_traceback_travels_on_from_ledger_to_ledger() -> None:
    first = through_the_ledger(raised(ValueError("far away")))
    second = through_the_ledger(raised(first))
    assert second.remote_traceback == first.remote_traceback


@pytest.mark.parametrize(
    "error",
    [
        errors.ActivityError(
            "failed", activity_type="charge", scheduled_event_id=7, attempt=3, retry_state="maximum_attempts"
        ),
        errors.TimeoutError("late", kind="heartbeat", last_heartbeat_details={"page": 7}),
        errors.TimeoutError("late", kind="start_to_close"),
        errors.WorkerLostError("lost"),
        errors.TerminatedError("ended"),
        errors.CancelledError("stopped"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_our_own_errors_come_back_as_themselves(error: errors.FailureError) -> None:
    back = through_the_ledger(error)
    assert type(back) is type(error)
    expected = {**vars(error), "remote_traceback": ""}
    assert vars(back) == expected


def test_a_plain_cancellation_and_a_plain_time_out_keep_their_meaning() -> None:
    cancelled = through_the_ledger(asyncio.CancelledError("stop"))
    assert isinstance(cancelled, asyncio.CancelledError)
    assert str(cancelled) == "stop"
    late = through_the_ledger(TimeoutError("late"))
    assert isinstance(late, errors.ApplicationError)
    assert late.type == "TimeoutError"


def test_the_cause_chain_survives_with_every_link() -> None:
    try:
        try:
            try:
                raise KeyError("sku")
            except KeyError as error:
                raise errors.ApplicationError("no such article", type="Unknown") from error
        except errors.ApplicationError:
            raise ValueError("cannot price")  # noqa: B904 - by context, not by cause
    except ValueError as error:
        back = through_the_ledger(error)
    types = []
    link: BaseException | None = back
    while isinstance(link, errors.ApplicationError):
        types.append(link.type)
        link = link.__cause__
    assert types == ["ValueError", "Unknown", "KeyError"]


def test_from_none_hides_the_context() -> None:
    try:
        try:
            raise KeyError("secret")
        except KeyError:
            raise ValueError("public") from None
    except ValueError as error:
        failure = failures.from_exception(error)
    assert failure.cause is None


def test_a_cause_chain_without_end_is_cut() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    length = 0
    link: Failure | None = failures.from_exception(first)
    while link is not None:
        length, link = length + 1, link.cause
    assert length == CAUSES_MAX + 1


def test_a_group_is_told_by_its_first_failure() -> None:
    group = ExceptionGroup("unhandled errors", [errors.ApplicationError("declined", type="CardDeclined"), KeyError()])
    failure = failures.from_exception(raised(group))
    assert failure.type == "ExceptionGroup"
    assert failure.cause is not None
    assert failure.cause.type == "CardDeclined"
    assert "KeyError" in failure.traceback


def test_details_that_cannot_be_kept_are_told_by_their_representation() -> None:
    """The failure itself must reach the ledger."""
    back = through_the_ledger(errors.ApplicationError("odd", object, 7))
    assert isinstance(back, errors.ApplicationError)
    assert back.details == ("<class 'object'>", 7)


def test_details_over_the_limit_of_a_payload_are_cut_too() -> None:
    back = through_the_ledger(errors.ApplicationError("verbose", *["x" * 100_000] * 20))
    assert isinstance(back, errors.ApplicationError)
    assert len(back.details) == failures.DETAILS_MAX
    assert all("characters left out" in detail for detail in back.details)


def test_long_texts_are_cut_in_the_middle() -> None:
    failure = failures.from_exception(ValueError("a" * 20_000 + "b" * 20_000))
    assert len(failure.message) < TEXT_MAX + 100
    assert failure.message.startswith("aaa")
    assert failure.message.endswith("bbb")
    assert "... 24000 characters left out ..." in failure.message


def test_lone_surrogates_do_not_stop_a_failure() -> None:
    assert through_the_ledger(ValueError("bad \ud800 text")).message == r"bad \ud800 text"


def test_a_cause_is_hung_at_the_end_of_the_chain() -> None:
    late = Failure("timeout", "TimeoutError", "late", cause=Failure("timeout", "TimeoutError", "slow"))
    chained = failures.with_cause(late, Failure("application", "Quota", "quota"))
    assert chained.cause is not None
    assert chained.cause.cause is not None
    assert chained.cause.cause.type == "Quota"
    assert failures.with_cause(late, None) == late


class UntellableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class UnfinishedError(errors.ApplicationError):
    def __init__(self) -> None:  # without the base's: none of its attributes is there
        self.code = 5


def odd(message: object = "odd", **attributes: object) -> errors.ApplicationError:
    """An error as user code may make it that heeds no annotation."""
    error = errors.ApplicationError(message)  # type: ignore[arg-type]
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    "error",
    [
        UntellableError(),
        UnfinishedError(),
        odd(5),
        odd(type=5),
        odd(type="\ud800"),
        odd(non_retryable="yes"),
        odd(next_retry_delay=5),
        odd(category=5),
        odd(details=(UntellableError(),)),
        errors.TimeoutError("late", kind=object()),  # type: ignore[arg-type]
    ],
)
def test_whatever_user_code_raises_can_be_kept_and_read_again(error: BaseException) -> None:
    assert isinstance(through_the_ledger(raised(error)), errors.FailureError)


def test_a_cause_that_cannot_be_told_does_not_hide_the_error() -> None:
    error = ValueError("known")
    error.__cause__ = UntellableError()
    back = through_the_ledger(error)
    assert (back.message, str(back.__cause__)) == ("known", "UntellableError: (no text: its str() raised RuntimeError)")
