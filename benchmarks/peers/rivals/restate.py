"""Restate: its server, a process with RocksDB, and the endpoint that it calls, under granian; asked over HTTP."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.peers.rival import Rival

#: After so long without progress the server suspends what waits (its default is a minute): otherwise sleepers fill the
#: invocations that it allows at a time, and W5 measures that minute.
INACTIVITY = "1s"

#: Tries, a tenth of a second apart, until server and endpoint answer.
TRIES = 600


class Adapter(Rival):
    async def up(self) -> None:
        fabric, ingress, admin, self._port = self.place.ports
        self._ingress, self._admin = f"http://127.0.0.1:{ingress}", f"http://127.0.0.1:{admin}"
        environment = os.environ | {
            "RESTATE_LOG_FILTER": "error",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_BIND_IP": "127.0.0.1",
            "RESTATE_BIND_PORT": str(fabric),
            "RESTATE_INGRESS__BIND_PORT": str(ingress),
            "RESTATE_ADMIN__BIND_PORT": str(admin),
            "RESTATE_LISTEN_MODE": "tcp",
            "RESTATE_ADVERTISED_HOST": "127.0.0.1",
            "RESTATE_WORKER__INVOKER__INACTIVITY_TIMEOUT": INACTIVITY,
        }
        [server] = Path(sys.prefix).parent.glob("npm/node_modules/@restatedev/*/bin/restate-server")
        command = [str(server), "--base-dir", str(self.place.directory), "--node-name", "peers", "--no-logo"]
        self._server = subprocess.Popen(command, env=environment)  # noqa: ASYNC220, S603 - it is not waited for
        self._endpoint = subprocess.Popen(self._granian())  # noqa: ASYNC220, S603 - as above
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        registration = {"uri": f"http://127.0.0.1:{self._port}", "force": True}
        await self._patiently(lambda: self._post(f"{self._admin}/deployments", registration))
        await self._patiently(lambda: self._call("bench/step_times"))

    async def down(self) -> None:
        await self._session.close()
        # The server first: the endpoint waits for the ends of its connections.
        for process in (self._server, self._endpoint):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def run_sequence(self, steps: int) -> None:
        await self._call("bench/sequence", steps)

    async def fan_out(self, width: int) -> None:
        await self._call("bench/fan_out", width)

    async def start_waiter(self, workflow_id: str) -> None:
        await self._call(f"waiter/{workflow_id}/run/send", {})

    async def signal(self, workflow_id: str) -> None:
        await self._call(f"waiter/{workflow_id}/go", {"number": 1})

    async def waiter_result(self, workflow_id: str) -> None:
        async with self._session.get(f"{self._ingress}/restate/workflow/waiter/{workflow_id}/attach") as answer:
            answer.raise_for_status()

    async def start_sleeper(self, workflow_id: str, seconds: float) -> None:
        del workflow_id  # a service's invocation has none
        await self._call("bench/sleeper/send", seconds)

    async def asleep(self) -> int:
        return int(await self._call("bench/asleep"))

    async def open_sleepers(self) -> int:
        query = (
            "SELECT count(*) AS n FROM sys_invocation WHERE target_handler_name = 'sleeper' AND status <> 'completed'"
        )
        return int((await self._post(f"{self._admin}/query", {"query": query}))["rows"][0]["n"])

    async def step_times(self) -> list[float]:
        return list(await self._call("bench/step_times"))

    def _granian(self) -> list[str]:
        options = ["--interface", "asgi", "--http", "2", "--host", "127.0.0.1", "--port", str(self._port)]
        application = "benchmarks.peers.rivals.restate_service:app"
        return [
            str(Path(sys.executable).with_name("granian")),
            *options,
            "--workers-kill-timeout",
            "2",
            "--log-level",
            "error",
            application,
        ]

    async def _call(self, path: str, body: object = None) -> Any:
        return await self._post(f"{self._ingress}/{path}", body)

    async def _post(self, url: str, body: object) -> Any:
        # A handler without input refuses null, and a type of nothing.
        content = {"skip_auto_headers": ["content-type"]} if body is None else {"json": body}
        async with self._session.post(url, headers={"accept": "application/json"}, **content) as answer:
            answer.raise_for_status()
            return await answer.json(content_type=None)

    async def _patiently(self, call: Callable[[], Awaitable[object]]) -> None:
        problem: Exception | None = None
        for _ in range(TRIES):
            for process in (self._server, self._endpoint):
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args[0]!r} ended with {process.returncode}")  # type: ignore[index]
            try:
                await call()
            except aiohttp.ClientError as error:
                problem = error
            else:
                return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"server and endpoint did not answer in a minute: {problem}")
