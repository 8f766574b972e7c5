"""The model of a store: plain dictionaries, obviously right, and scriptable faults.

The other stores are checked against this one, simulations run on it, and `memory://` serves quick tests. `state` holds
what a database would; `ledger`, `mailbox`, `tasks`, `sessions` and `requests` are the rules of the port by subject, as
plain functions over the state; `store` puts the asynchronous verbs, the fault hooks and the wake-ups around them.
"""

from pledger.store.memory.faults import Faults
from pledger.store.memory.state import State
from pledger.store.memory.store import MemoryStore, open_memory

__all__ = ["Faults", "MemoryStore", "State", "open_memory"]
