"""Calls to JSON arrays and back: binding, defaults, annotations, and what a definition is refused for."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pytest

from pledger.errors import PayloadError, UsageError
from pledger.history.payloads import Signature, encode_args_untyped

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]

P = ParamSpec("P")
R = TypeVar("R")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Order:
    id: str
    amount: Decimal


def traced(fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return fn(*args, **kwargs)

    return wrapper


async def fulfil(order: Order, count: int = 1, note: str | None = None) -> list[Order]:
    return [order] * count


@traced
async def wrapped(order: Order) -> Order:
    return order


async def many(first: int, *rest: Decimal) -> None: ...
async def ordered(first: int, second: str = "b", *, third: int = 3, fourth: int) -> None: ...
async def untyped(first, second=None): ...  # type: ignore[no-untyped-def]  # noqa: ANN001
async def implicit(name: str = None, count: int = 1) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
async def late(order: Missing) -> None: ...
async def late_result() -> Missing: ...
async def streamed(source: Callable[[], int]) -> None: ...
async def open_ended(**options: int) -> None: ...
async def mixed(*parts: int, last: int) -> None: ...
def nothing() -> None: ...
def later() -> Awaitable[Order]: ...
def coroutine() -> Coroutine[Any, Any, Decimal]: ...
async def awaitable_result() -> Awaitable[int]: ...


class Fulfilment:
    async def run(self, order: Order) -> Decimal:
        return order.amount

    @traced
    def amount(self, order: Order) -> Decimal:
        return order.amount

    def selfless() -> None: ...  # type: ignore[misc]


ORDER = Order("A1", Decimal("9.90"))


def sent(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    """What arrives on the other side of a call."""
    signature = Signature.of(fn)
    return signature.decode_args(signature.encode_args(args, kwargs))


# Binding --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "arrives"),
    [
        ((ORDER,), {}, [ORDER]),
        ((ORDER, 2), {}, [ORDER, 2]),
        ((), {"order": ORDER}, [ORDER]),
        ((), {"count": 2, "order": ORDER}, [ORDER, 2]),
        ((ORDER,), {"note": "x"}, [ORDER, 1, "x"]),  # the gap takes the default
        ((ORDER, 2, None), {}, [ORDER, 2, None]),
    ],
)
def test_arguments_arrive_in_the_order_of_the_parameters(args: Any, kwargs: Any, arrives: list[Any]) -> None:
    assert sent(fulfil, *args, **kwargs) == arrives


def test_trailing_defaults_are_left_out() -> None:
    assert Signature.of(fulfil).encode_args((ORDER,), {}) == b'[{"id":"A1","amount":"9.90"}]'
    assert Signature.of(nothing).encode_args((), {}) == b"[]"


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "fulfil() cannot be called so: missing a required argument: 'order'"),
        ((ORDER, 1, None, 4), {}, "too many positional arguments"),
        ((ORDER,), {"order": ORDER}, "multiple values for argument 'order'"),
        ((ORDER,), {"size": 1}, "got an unexpected keyword argument 'size'"),
    ],
)
def test_a_wrong_call_raises_the_type_error_that_python_would(args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        Signature.of(fulfil).encode_args(args, kwargs)
    assert says in str(caught.value)


def test_variadic_parameters_take_any_number_by_their_annotation() -> None:
    assert sent(many, 1) == [1]
    assert sent(many, 1, Decimal(2), Decimal(3)) == [1, Decimal(2), Decimal(3)]
    assert sent(many, first=1) == [1]
    with pytest.raises(
        PayloadError, match=r"the argument rest of many\(\) cannot be kept: at \$\[2\]: annotated as Decimal"
    ):
        sent(many, 1, Decimal(2), 3)


def test_keyword_only_parameters_follow_the_positional_ones() -> None:
    signature = Signature.of(ordered)
    assert signature.keyword_only == ("third", "fourth")
    assert sent(ordered, 1, fourth=4) == [1, "b", 3, 4]
    assert signature.split(sent(ordered, 1, "x", fourth=4, third=5)) == ([1, "x"], {"third": 5, "fourth": 4})
    assert Signature.of(fulfil).split([ORDER, 2]) == ([ORDER, 2], {})
    with pytest.raises(TypeError, match="too many positional arguments"):
        signature.encode_args((1, "x", 3, 4), {})


def test_missing_annotations_mean_any_supported_value() -> None:
    values = [(1, NOON), {1: b"x"}]
    assert sent(untyped, *values) == values
    assert Signature.of(untyped).decode_result(Signature.of(untyped).encode_result({1})) == {1}


def test_a_default_of_none_makes_the_parameter_optional() -> None:
    assert sent(implicit, count=2) == [None, 2]
    assert sent(implicit, "a") == ["a"]


def test_arguments_of_a_function_known_by_name_are_read_by_its_annotations() -> None:
    assert Signature.of(fulfil).decode_args(b'[{"id":"A1","amount":"9.90"},2]') == [ORDER, 2]
    by_name = encode_args_untyped([{"id": "A1", "amount": Decimal("9.90")}, 2, None])
    assert Signature.of(fulfil).decode_args(by_name) == [ORDER, 2, None]
    assert Signature.of(many).decode_args(encode_args_untyped((1, Decimal(2)))) == [1, Decimal(2)]


def test_untyped_arguments_are_refused_by_path() -> None:
    with pytest.raises(PayloadError, match="Annotate") as caught:
        encode_args_untyped([1, ORDER])
    assert caught.value.path == "$[1]"


# Results --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "result"),
    [(fulfil, [ORDER]), (wrapped, ORDER), (nothing, None), (later, ORDER), (coroutine, Decimal("0.10"))],
)
def test_a_result_comes_back_by_its_annotation(fn: Callable[..., Any], result: object) -> None:
    signature = Signature.of(fn)
    assert signature.decode_result(signature.encode_result(result)) == result


@pytest.mark.parametrize("fn", [later, coroutine, nothing])
def test_a_result_of_another_type_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(PayloadError, match=rf"the result of {fn.__name__}\(\) cannot be kept: at \$: annotated as"):
        Signature.of(fn).encode_result(1.5)


# Errors of one call ---------------------------------------------------------------------------------------------------


def test_a_refused_argument_is_named_with_its_function_and_path() -> None:
    signature = Signature.of(fulfil)
    with pytest.raises(PayloadError) as caught:
        signature.encode_args((Order("A1", 9.9), 1), {})  # type: ignore[arg-type]
    assert caught.value.path == "$[0].amount"
    assert str(caught.value).startswith(
        "the argument order of fulfil() cannot be kept: at $[0].amount: annotated as Decimal"
    )
    with pytest.raises(PayloadError, match=r"the argument note of fulfil\(\) cannot be kept: at \$\[2\]: .*surrogate"):
        signature.encode_args((ORDER, 1, "\ud83d"), {})


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"[]", "the arguments of fulfil() cannot be read: at $: expected the arguments (order, count, note), found 0"),
        (
            b"[1,2,3,4]",
            "expected the arguments (order, count, note), found 4. Send those, or give new parameters a default",
        ),
        (b"{}", "expected the array of arguments, found an object. Send one"),
        (b"[", "strict JSON"),
        (
            b'[{"id":"A1","amount":"x"}]',
            "the argument order of fulfil() cannot be read: at $[0].amount: expected Decimal",
        ),
        (b'[{"id":"A1","amount":"1"},"2"]', "the argument count of fulfil() cannot be read: at $[1]: expected int"),
    ],
)
def test_arguments_of_another_shape_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(PayloadError) as caught:
        Signature.of(fulfil).decode_args(data)
    assert says in str(caught.value)


def test_a_function_without_parameters_takes_no_arguments() -> None:
    with pytest.raises(PayloadError, match="expected no arguments, found 1"):
        Signature.of(nothing).decode_args(b"[1]")


def test_a_result_of_another_shape_is_refused() -> None:
    with pytest.raises(PayloadError, match=r"the result of fulfil\(\) cannot be read: at \$\[0\]\.id: the field id"):
        Signature.of(fulfil).decode_result(b"[{}]")


# Definitions ----------------------------------------------------------------------------------------------------------


def test_a_signature_is_built_once() -> None:
    assert Signature.of(fulfil) is Signature.of(fulfil)


def test_methods_with_and_without_self() -> None:
    for signature in (
        Signature.of(Fulfilment.run, skip_self=True),
        Signature.of(Fulfilment().run),
        Signature.of(Fulfilment().amount),
    ):
        assert signature.decode_args(signature.encode_args((ORDER,), {})) == [ORDER]
        assert signature.decode_result(signature.encode_result(Decimal(1))) == Decimal(1)
        assert signature.name.startswith("Fulfilment.")


def test_wrapped_and_partial_functions_keep_their_annotations() -> None:
    assert sent(wrapped, ORDER) == [ORDER]
    assert sent(functools.partial(fulfil, ORDER), 2) == [2]
    with pytest.raises(PayloadError, match="annotated as int"):
        sent(functools.partial(fulfil, ORDER), "2")


@pytest.mark.parametrize(
    ("fn", "skip_self", "says"),
    [
        (late, False, "annotation 'Missing' of the parameter order of late() cannot be resolved (NameError"),
        (late, False, "Define or import the name at module level, outside of `if TYPE_CHECKING`"),
        (late_result, False, "annotation 'Missing' of the result of late_result() cannot be resolved"),
        (streamed, False, "parameter source of streamed(): values annotated as"),
        (awaitable_result, False, "result of awaitable_result(): values annotated as"),
        (open_ended, False, "open_ended() takes **kwargs, which have no order in a payload. Name the parameters"),
        (mixed, False, "mixed() takes *args before keyword-only parameters"),
        (Fulfilment.selfless, True, "Fulfilment.selfless() takes no self. Make it a method"),
        (min, False, "the parameters of min cannot be read"),
    ],
)
def test_a_definition_that_cannot_be_laid_out_is_refused(fn: Callable[..., Any], skip_self: bool, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        Signature.of(fn, skip_self=skip_self)
    assert says in str(caught.value)
