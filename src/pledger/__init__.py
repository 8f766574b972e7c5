"""Pledger: durable workflows for Python. The engine is a ledger; the steps are promises.

from pledger import Client, SyncClient, Worker, RetryPolicy, activity, connect, errors, run, workflow
"""

from pledger import activity, errors, workflow
from pledger.client import Client, connect
from pledger.history.retry import RetryPolicy
from pledger.sync import SyncClient, run
from pledger.worker import Worker

__all__ = ["Client", "RetryPolicy", "SyncClient", "Worker", "activity", "connect", "errors", "run", "workflow"]
