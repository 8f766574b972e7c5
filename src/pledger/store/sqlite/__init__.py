"""The embedded store: one SQLite file, through apsw.

From the bottom: `files` and `connection` open it, `schema` brings it up to date, `writer` makes transactions durable,
`lane` chooses the thread they run on, `database` shares all that between the handles of a process, `handle` is one
opener's view of it. `ledger`, `mailbox`, `tasks`, `sessions` and `requests` hold the port's operations and verbs by
subject, each beside its `queries/<subject>.sql`; `commit` writes a batch of operations; `store` puts them together.
"""

from pledger.store.sqlite.store import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "open_sqlite"]
