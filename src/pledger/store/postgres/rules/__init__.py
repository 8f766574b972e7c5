"""What becomes of each operation, decided on rows that are locked: no I/O here.

`ledger`, `mailbox` and `tasks` say by subject what an operation needs to look at (`needs`) and what it then comes to
(`decide`); `every` is the table of both.
"""
