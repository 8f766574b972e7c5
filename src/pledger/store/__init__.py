"""Stores: the databases behind the port that the engine declares in `pledger.engine.port`.

`memory/` is the model, `sqlite/` the embedded one, `postgres/` that of a fleet; `tests/conformance` holds every store
to the same rules.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from pledger.errors import UsageError

if TYPE_CHECKING:
    from pledger.engine.port.verbs import Store

__all__ = ["has_ledger", "open_store"]

_POSTGRES: Final = frozenset({"postgresql", "postgres"})
_FORMS: Final = (
    "  memory://            a ledger of its own, gone with the process\n"
    "  memory://name        one shared by name within this process\n"
    "  sqlite:///orders.db  a file, relative to the working directory\n"
    "  sqlite:////var/lib/orders.db  a file by its absolute path\n"
    "  postgresql://user:password@host/database  a server, for many machines; ?schema=pledger"
)


async def open_store(url: str, *, durability: str = "power") -> Store:
    """The store behind `url`; `memory://[name]`, `sqlite:///relative.db`, `sqlite:////absolute.db` or
    `postgresql://user@host/database?schema=pledger`.

    durability: "power" (an acknowledged change survives power loss) or "process" (it survives a crash of the process,
    and a power cut may take the last ones: faster, by explicit choice). Only a database on disk knows the difference.
    `?allow_network_fs=1` lifts the refusal of SQLite files on network file systems.
    Raises UsageError for a URL or a place that cannot be, StoreError for a file that cannot be used.
    """
    scheme, separator, rest = url.partition("://")
    if durability not in ("power", "process"):
        raise UsageError(f"durability={durability!r} is not known: use 'power' or 'process'.")
    path, _, query = rest.partition("?")
    # Imported here: whoever uses one store pays for the import of that one only.
    options: dict[str, list[str]] = {}
    if query:
        from urllib.parse import parse_qs  # noqa: PLC0415

        options = parse_qs(query)
    if scheme == "memory" and separator and not options:
        from pledger.store.memory import open_memory  # noqa: PLC0415

        return open_memory(path)
    if scheme == "sqlite" and path.startswith("/") and len(path) > 1 and options.keys() <= {"allow_network_fs"}:
        from pledger.store.sqlite import open_sqlite  # noqa: PLC0415

        return open_sqlite(path[1:], durability=durability, allow_network_fs=options.get("allow_network_fs") == ["1"])
    if scheme in _POSTGRES and separator:
        store: Store = await _postgres().open_postgres(url, durability=durability)
        return store
    raise UsageError(f"{url!r} names no store. Valid forms:\n{_FORMS}")


async def has_ledger(url: str) -> bool:
    """Whether `open_store` would find a ledger there, and not make one.

    Raises StoreError when a server cannot be asked.
    """
    scheme, _, rest = url.partition("://")
    if scheme in _POSTGRES:
        return bool(await _postgres().has_ledger(url))
    return scheme == "sqlite" and _is_there(rest.partition("?")[0][1:])


def _is_there(path: str) -> bool:
    return bool(path) and Path(path).exists()


def _postgres() -> ModuleType:
    """The package, imported here as above. Raises UsageError without the driver."""
    try:
        return importlib.import_module("pledger.store.postgres")
    except ImportError as error:
        raise UsageError(
            f"A ledger on PostgreSQL needs psycopg, which cannot be imported ({error}): pip install 'pledger[postgres]'"
        ) from error
