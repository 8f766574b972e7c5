"""Iteration: loops with a beginning and an end, loops without, and what is made of itself."""

from examples.patterns.catalogue.pattern import Pattern
from examples.patterns.catalogue.tasks import task
from pledger import workflow


@workflow.defn
async def arbitrary_cycles(verdicts: list[str]) -> list[str]:
    told, state = [], "write"
    while state != "print":
        told.append(await task(state))
        match state:
            case "write":
                state = "review"
            case "review":  # from here it goes anywhere
                state = verdicts.pop(0)
            case "correct":
                state = "review"
            case _:
                raise ValueError(state)
    return told


@workflow.defn
async def structured_loop(offers: list[int], price: int) -> list[str]:
    told = []
    while offers and offers[0] < price:
        told.append(await task(f"refuse {offers.pop(0)}"))
    return told


@workflow.defn
async def recursion(parts: dict[str, list[str]], part: str) -> str:
    """A part is made of its parts, each in a run of its own."""
    made = [await workflow.execute_child_workflow(recursion, parts, each) for each in parts.get(part, [])]
    return await task(f"{part}({', '.join(made)})" if made else part)


PATTERNS = [
    Pattern(
        10,
        "Arbitrary Cycles",
        arbitrary_cycles,
        (["correct", "write", "print"],),
        result=["write", "review", "correct", "review", "write", "review"],
    ),
    Pattern(21, "Structured Loop", structured_loop, ([3, 5, 9], 8), result=["refuse 3", "refuse 5"]),
    Pattern(
        22, "Recursion", recursion, ({"car": ["engine"], "engine": ["piston"]}, "car"), result="car(engine(piston))"
    ),
]
