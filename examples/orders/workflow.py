"""Order fulfilment: reserve stock, charge the card, book a courier, wait for dispatch, confirm.

What has been done is undone, last thing first, when a later step is refused for good: every order ends in one of the
states of `Ending`. The steps are promises to systems that fail, repeat and forget; each hands its idempotency key over,
so a promise that is made again is kept once.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from functools import partial

from examples.orders.orders import Order
from examples.orders.outside import (
    BookingRejected,
    CardDeclined,
    CardProcessor,
    Couriers,
    DispatchBoard,
    OutOfStock,
    PostOffice,
    Warehouse,
    world,
)
from pledger import RetryPolicy, activity, errors, workflow


class Ending(StrEnum):
    CONFIRMED = "confirmed"
    OUT_OF_STOCK = "out_of_stock"
    DECLINED = "declined"
    REJECTED_BY_COURIER = "rejected_by_courier"
    NOT_DISPATCHED = "not_dispatched"


#: The outside's refusals, and how an order ends on them.
REFUSALS = {
    OutOfStock.__name__: Ending.OUT_OF_STOCK,
    CardDeclined.__name__: Ending.DECLINED,
    BookingRejected.__name__: Ending.REJECTED_BY_COURIER,
}

# Short intervals, since the demo is short. Twelve attempts, since a worker that dies takes an attempt with it.
step = activity.defn(
    start_to_close_timeout=timedelta(seconds=10),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=100),
        maximum_interval=timedelta(seconds=2),
        maximum_attempts=12,
        non_retryable_error_types=list(REFUSALS),
    ),
)

# The steps: plain functions, so each runs in a thread of the worker ---------------------------------------------------


@step
def reserve_stock(order: Order) -> str:
    """The reservation's key. Refused with OutOfStock."""
    key = activity.info().idempotency_key
    Warehouse(world()).reserve(key, order.order_id, order.quantities)
    return key


@step
def release_stock(reservation: str) -> None:
    Warehouse(world()).release(reservation)


@step
def charge_card(order: Order) -> str:
    """The charge's key. Refused with CardDeclined."""
    key = activity.info().idempotency_key
    CardProcessor(world()).charge(key, order.order_id, order.amount_cents)
    return key


@step
def refund_card(charge: str) -> None:
    CardProcessor(world()).refund(charge)


@step
def book_courier(order: Order) -> str:
    """The booking's key. Refused with BookingRejected."""
    key = activity.info().idempotency_key
    Couriers(world()).book(key, order.order_id, order.courier)
    return key


@step
def cancel_courier(booking: str) -> None:
    Couriers(world()).cancel(booking)


@step
def withdraw_parcel(order_id: int) -> bool:
    """Whether the parcel was still in the house; False when it has left all the same."""
    return DispatchBoard(world()).withdraw(activity.info().idempotency_key, order_id)


@step
def confirm_order(order_id: int) -> None:
    PostOffice(world()).confirm(activity.info().idempotency_key, order_id)


STEPS: list[Callable[..., object]] = [
    reserve_stock,
    release_stock,
    charge_card,
    refund_card,
    book_courier,
    cancel_courier,
    withdraw_parcel,
    confirm_order,
]


# The process ----------------------------------------------------------------------------------------------------------


@workflow.defn
class FulfilOrder:
    def __init__(self) -> None:
        self._dispatched = False
        self._undo: list[Callable[[], Awaitable[None]]] = []

    @workflow.signal
    def dispatched(self) -> None:
        """The parcel has left the house."""
        self._dispatched = True

    @workflow.run
    async def run(self, order: Order, dispatch_within: timedelta) -> Ending:
        """dispatch_within: how long a booked parcel may wait for its courier before it is taken back."""
        ending = await self._place(order) or await self._see_off(order, dispatch_within)
        if ending is Ending.CONFIRMED:
            await confirm_order(order.order_id)
            return ending
        for undo in reversed(self._undo):
            await undo()
        return ending

    async def _place(self, order: Order) -> Ending | None:
        """Reserve, charge, book. The ending when one of them is refused, else None.

        A step that fails in any other way has used up its attempts, and nobody knows whether it was done: that is for
        a person to settle, not for a compensation to guess at. The error goes on and the run fails with it.
        """
        try:
            self._undo.append(partial(release_stock, await reserve_stock(order)))
            self._undo.append(partial(refund_card, await charge_card(order)))
            self._undo.append(partial(cancel_courier, await book_courier(order)))
        except errors.ActivityError as error:
            match error.__cause__:
                case errors.ApplicationError(type=refusal) if refusal in REFUSALS:
                    return REFUSALS[refusal]
            raise
        return None

    async def _see_off(self, order: Order, within: timedelta) -> Ending:
        """Wait until the parcel has left. Past the deadline it is taken back, unless it leaves that very moment."""
        try:
            await workflow.wait_condition(lambda: self._dispatched, timeout=within)
        except TimeoutError:
            if await withdraw_parcel(order.order_id):
                return Ending.NOT_DISPATCHED
        return Ending.CONFIRMED
