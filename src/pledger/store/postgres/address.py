"""Where a ledger is: the server, the database and the schema, out of a URL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from pledger.errors import UsageError

#: The schema of a ledger whose URL names none.
SCHEMA: Final = "pledger"

#: Libpq names a parameter that it does not know.
_UNKNOWN: Final = re.compile(r'invalid URI query parameter: "(\w+)"')
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Address:
    """conninfo: for libpq. schema: where the tables lie. shown: the URL without user and password, for people.

    lossless: a replica that takes over lacks nothing that was acknowledged.
    """

    conninfo: str
    schema: str
    shown: str
    lossless: bool = False

    @property
    def quoted(self) -> str:
        """The schema as SQL has it: its name may be one of SQL's own words."""
        return f'"{self.schema}"'

    @property
    def channel(self) -> str:
        """Where the processes of this ledger tell each other news."""
        return f"pledger_{self.schema}"[:63]


def parse_url(url: str) -> Address:
    """`postgresql://user:password@host:port/database?schema=name&...`; further parameters are libpq's.

    Raises UsageError for a URL or a schema that cannot be.
    """
    parts = urlsplit(url)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    schema = parameters.pop("schema", SCHEMA)
    if not _NAME.fullmatch(schema) or schema.startswith("pg_"):
        raise UsageError(
            f"schema={schema!r} cannot be: use lower-case letters, digits and underscores, at most 63 of them, and "
            "neither a digit nor pg_ at the beginning."
        )
    failover = parameters.pop("failover", "lossy")
    if failover not in ("lossy", "lossless"):
        raise UsageError(
            f"failover={failover!r} is not known: use lossless where a replica is only promoted when it has all "
            "that was acknowledged (synchronous replication), else lossy."
        )
    query = urlencode(parameters, quote_via=quote)
    conninfo = f"postgresql://{parts.netloc}{parts.path}{'?' if query else ''}{query}"
    try:
        known = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    except psycopg.ProgrammingError as error:
        unknown = _UNKNOWN.search(str(error))
        if unknown and unknown[1] in parameters:
            raise UsageError(
                f"{unknown[1]}= in the postgresql:// URL is no parameter of libpq, and none of Pledger's (schema). "
                "Correct its name, or leave it out."
            ) from None
        known = {}
    if not known or parts.fragment or "@" in parts.path:
        # Not shown: what cannot be read may hold a password anywhere.
        raise UsageError(
            "the postgresql:// URL cannot be read. Characters such as / ? # @ : % in a user or password are written as "
            "%2F %3F %23 %40 %3A %25."
        )
    place = known.get("host", "") + (f":{known['port']}" if known.get("port") else "")
    return Address(
        conninfo, schema, f"postgresql://{place}/{known.get('dbname', '')}?schema={schema}", failover == "lossless"
    )
