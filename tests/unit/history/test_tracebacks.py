"""A traceback shows the author's own frames, wherever Pledger's stand between them."""

from __future__ import annotations

import sys
import traceback

import pytest

from pledger import activity, errors
from pledger.history import payloads, tracebacks


@activity.defn
def charge(card: str) -> str:
    if not card:
        raise ValueError("no card")
    try:
        return {}[card]
    except KeyError as error:
        raise LookupError("unknown card") from error


@activity.defn
def stack(_: str) -> str:
    return tracebacks.running(sys._getframe())


def caught(card: str) -> Exception:
    with pytest.raises((ValueError, LookupError)) as found:
        charge(card)
    return found.value


def test_the_frames_of_pledger_are_left_out() -> None:
    error = caught("")
    assert "definitions.py" in "".join(traceback.format_exception(error))
    text = tracebacks.text_of(error)
    assert "definitions.py" not in text
    assert "in caught" in text
    assert "in charge" in text
    assert text.startswith("Traceback (most recent call last):\n")
    assert text.endswith("ValueError: no card\n")


def test_causes_and_members_of_groups_are_filtered_too() -> None:
    group = ExceptionGroup("both", [caught(""), caught("visa")])
    for text in (tracebacks.text_of(caught("visa")), tracebacks.text_of(group)):
        assert "definitions.py" not in text
        assert "KeyError: 'visa'" in text
        assert "return {}[card]" in text
        assert "LookupError: unknown card" in text


def test_without_the_chain_the_causes_are_left_to_others() -> None:
    text = tracebacks.text_of(caught("visa"), chain=False)
    assert "LookupError: unknown card" in text
    assert "KeyError" not in text


def without_callers(error: BaseException) -> BaseException:
    """The error as somebody in Pledger met it who was not called by the author's code."""
    trace = error.__traceback__
    while trace is not None and not tracebacks.is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    assert trace is not None
    return error.with_traceback(trace)


def test_an_error_of_pledgers_own_says_it_all_in_its_message() -> None:
    with pytest.raises(errors.PayloadError) as found:
        payloads.encode(object())
    assert "payloads.encode(object())" in tracebacks.text_of(found.value)
    assert tracebacks.text_of(without_callers(found.value)) == ""


def test_what_may_be_a_bug_of_pledger_is_shown_whole() -> None:
    with pytest.raises(TypeError) as found:
        charge()  # type: ignore[call-arg]
    assert "definitions.py" in tracebacks.text_of(without_callers(found.value))


def test_a_log_record_gets_the_authors_frames() -> None:
    info = tracebacks.for_log(caught(""))
    assert info is not None
    kind, error, trace = info
    text = "".join(traceback.format_exception(kind, error, trace))
    assert "definitions.py" not in text
    assert "in charge" in text
    assert error.__traceback__ is not trace  # the error itself is left as it was raised


class UnnotedError(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no notes")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the standard library takes such notes from 3.13 on")
def test_an_error_whose_own_code_raises_is_told_without_it() -> None:
    with pytest.raises(UnnotedError) as found:
        raise UnnotedError
    text = tracebacks.text_of(found.value)
    assert "in test_an_error_whose_own_code" in text
    assert text.endswith("UnnotedError\n")
    assert tracebacks.for_log(found.value) is None


def test_a_running_stack_begins_below_the_engine() -> None:
    text = stack("")
    assert "in stack" in text
    assert "in test_a_running_stack" not in text
    assert "definitions.py" not in text
