"""The store of a fleet: a schema in a PostgreSQL database, through psycopg.

From the bottom: `address` and `links` reach the server, `schema` brings the tables up to date, `statements` holds the
SQL of `queries/`. A batch is cut into `rounds`; of each, `found` says what is locked and read, `rules` what that comes
to, `writes` what is written; `commit` does all of it in two round trips, or in one what goes `at_once`. `news` and
`listening` tell other processes.
`handle` is one opener's view; `ledger`, `mailbox`, `tasks`, `sessions` and `requests` hold the verbs by subject;
`store` puts them together.
"""

from pledger.store.postgres.store import PostgresStore, has_ledger, open_postgres

__all__ = ["PostgresStore", "has_ledger", "open_postgres"]
