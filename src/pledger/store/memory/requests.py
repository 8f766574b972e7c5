"""Questions to runs that another process owns."""

from __future__ import annotations

from msgspec.structs import replace

from pledger.engine.port.records import Request
from pledger.store.memory.state import State


def ask(state: State, run_key: int, kind: str, name: str, body: bytes, expires_ms: int) -> int:
    state.run(run_key)
    request = Request(next(state.keys), run_key, kind, name, body, expires_ms)
    state.requests[request.request_key] = request
    state.wake(run_key)
    return request.request_key


def read_requests(state: State, run_key: int) -> list[Request]:
    now = state.clock()
    return [
        request
        for request in state.requests.values()
        if request.run_key == run_key and not _answered(request) and request.expires_ms > now
    ]


def answer_request(
    state: State, request_key: int, answer: bytes | None, failure: bytes | None, fence: int | None = None
) -> None:
    request = state.requests.get(request_key)
    if request is None or _answered(request):
        return
    if fence is None or state.run(request.run_key).fence == fence:
        state.requests[request_key] = replace(request, answer=answer, failure=failure)


def take_answer(state: State, request_key: int) -> Request | None:
    request = state.requests.get(request_key)
    return state.requests.pop(request_key) if request is not None and _answered(request) else None


def drop_requests(state: State, now_ms: int) -> None:
    for request in list(state.requests.values()):
        if request.expires_ms <= now_ms:
            del state.requests[request.request_key]


def _answered(request: Request) -> bool:
    return request.answer is not None or request.failure is not None
