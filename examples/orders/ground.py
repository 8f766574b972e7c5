"""What the demo's ledger lies on: a SQLite file, or a PostgreSQL server of its own that is restarted at any moment."""

import asyncio
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pledger.testing.postgres import PostgresServer, postgres_server

Store = Literal["sqlite", "postgres"]

#: Seconds from one restart of the server to the next, drawn anew each time.
PAUSE_S = (2.5, 6.0)


@dataclass
class Ground:
    """url: of the ledger. server: where there is one. restarts: so far."""

    url: str
    server: PostgresServer | None = None
    restarts: int = 0

    async def shake(self, times: int, dice: random.Random) -> None:
        """Restart the server again and again: every second time as in a crash, with nothing said to anybody."""
        for _ in range(times if self.server is not None else 0):
            await asyncio.sleep(dice.uniform(*PAUSE_S))
            assert self.server is not None
            await asyncio.to_thread(self.server.restart, at_once=self.restarts % 2 == 0)
            self.restarts += 1


@contextmanager
def prepare(store: Store, directory: Path) -> Iterator[Ground]:
    """An empty ledger below the directory."""
    if store == "sqlite":
        yield Ground(f"sqlite:///{directory.absolute() / 'ledger.db'}")
        return
    # Where any user may pass: a server does not run as root.
    with tempfile.TemporaryDirectory(prefix="pledger-demo-") as place:
        Path(place).chmod(0o755)
        with postgres_server(Path(place) / "server") as server:
            yield Ground(server.url, server)
