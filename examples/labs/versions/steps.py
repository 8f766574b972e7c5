"""What the versions have in common."""

from pledger import activity


@activity.defn
async def reserve_stock(order: str) -> str:
    return f"stock for {order} reserved"


@activity.defn
async def check_address(order: str) -> str:
    return f"address of {order} checked"


@activity.defn
async def ship(order: str) -> str:
    return f"{order} shipped"


STEPS = [reserve_stock, check_address, ship]
