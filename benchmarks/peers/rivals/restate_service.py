"""What Restate's server calls: an ASGI application, in a process of its own."""

import time
from datetime import timedelta

import restate

_step_times: list[float] = []
_asleep: list[int] = []

bench = restate.Service("bench")
waiter = restate.Workflow("waiter")


async def step(number: int) -> dict[str, int]:
    _step_times.append(time.perf_counter())
    return {"number": number}


async def last_step(number: int) -> dict[str, int]:
    _asleep.append(number)
    return {"number": number}


@bench.handler()
async def sequence(context: restate.Context, steps: int) -> dict[str, int]:
    for number in range(steps):
        await context.run_typed("step", step, restate.RunOptions(), number)
    return {"number": steps}


@bench.handler()
async def fan_out(context: restate.Context, width: int) -> dict[str, int]:
    steps = [context.run_typed("step", step, restate.RunOptions(), number) for number in range(width)]
    await restate.gather(*steps)
    return {"number": len([await each for each in steps])}


@bench.handler()
async def sleeper(context: restate.Context, seconds: float) -> dict[str, int]:
    await context.run_typed("step", step, restate.RunOptions(), 0)
    await context.run_typed("last_step", last_step, restate.RunOptions(), 1)
    await context.sleep(timedelta(seconds=seconds))
    await context.run_typed("step", step, restate.RunOptions(), 2)
    await context.run_typed("step", step, restate.RunOptions(), 3)
    return {"number": 4}


@bench.handler()
async def step_times(_context: restate.Context) -> list[float]:
    return _step_times


@bench.handler()
async def asleep(_context: restate.Context) -> int:
    return len(_asleep)


@waiter.main()
async def run(context: restate.WorkflowContext, _input: dict[str, int]) -> dict[str, int]:
    return await context.promise("go", type_hint=dict[str, int]).value()


@waiter.handler()
async def go(context: restate.WorkflowSharedContext, message: dict[str, int]) -> None:
    await context.promise("go", type_hint=dict[str, int]).resolve(message)


app = restate.app([bench, waiter])
