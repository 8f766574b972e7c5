"""The part of the client that completes activities from outside: whoever has the token of an attempt says how it ended.

Imported as a part of `pledger.client.Client`, which says what a client is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pledger import errors
from pledger.engine import completing
from pledger.history.times import DURATION_MAX, check_duration, in_words, milliseconds
from pledger.machine.definitions import ActivityDefinition

if TYPE_CHECKING:
    from pledger.engine.connection import Connection

#: For how long tokens of earlier keys are accepted after a rotation, where nothing else is said.
TOKEN_KEEP: Final = timedelta(days=7)
#: Of a secret that signs tokens: as many as its signature has.
TOKEN_KEY_BYTES_MIN: Final = 32


def check_token_keys(given: Sequence[object]) -> None:
    """Raises InvalidPolicyError. What it says has nothing of them in it."""
    for number, secret in enumerate(given):
        if not isinstance(secret, bytes) or len(secret) < TOKEN_KEY_BYTES_MIN:
            raise errors.InvalidPolicyError(
                f"token_keys[{number}] must be a secret of at least {TOKEN_KEY_BYTES_MIN} bytes: "
                "secrets.token_bytes(32), say, kept where your other secrets are"
            )


class Completions:
    """A client, as far as it completes activities."""

    @property
    def internals(self) -> Connection:
        raise NotImplementedError

    async def complete_activity(
        self, token: str | bytes, result: Any = None, *, activity: Callable[..., Any] | None = None
    ) -> None:
        """Give the result of an attempt whose code has ended with `activity.raise_complete_async()`; durable when this
        returns. Of all that completes or fails the attempt one comes first, and the others are refused.

        token: from `activity.completion_token()`. A token that is faster than its attempt waits for it, up to 10 s.
        activity: the definition, so that the result is kept by its annotation.
        Raises TokenForgedError, TokenExpiredError, TokenMisdirectedError (of another namespace or ledger),
        TokenUsedError (the activity has its outcome), TokenSupersededError (a later attempt, a closed run),
        TokenTooEarlyError (try again), PayloadError. All but the last two are recorded in the run's attempt log.
        """
        internals = self.internals
        if activity is not None and not isinstance(activity, ActivityDefinition):
            raise errors.UsageError(f"activity={activity!r} is none: decorate the function with @activity.defn")
        await completing.complete(internals, token, result, activity)

    async def fail_activity(self, token: str | bytes, error: BaseException | str) -> None:
        """The same with a failure: the retry policy of the activity decides whether there is a next attempt.

        error: `ApplicationError(type=..., non_retryable=True)` says more than a text. Raises TokenError.
        """
        raised = errors.ApplicationError(error) if isinstance(error, str) else error
        if not isinstance(raised, BaseException):
            raise errors.UsageError(f"fail_activity() takes an exception or a text, not {type(error).__name__}")
        await completing.fail(self.internals, token, raised)

    async def heartbeat_activity(self, token: str | bytes, *details: Any) -> bool:
        """Say that the attempt is alive, which its heartbeat_timeout asks for; True once it was asked to stop.

        details: what the next attempt reads, should this one fail. Each call is a write. Raises TokenError.
        """
        return await completing.heartbeat(self.internals, token, details)

    async def report_cancellation(self, token: str | bytes, reason: str = "") -> None:
        """It was asked to stop, and has. Raises TokenError, and UsageError where nobody has asked."""
        await completing.report_cancellation(self.internals, token, reason)

    async def rotate_token_keys(self, *, keep: timedelta = TOKEN_KEEP) -> str:
        """Have another key of the ledger sign tokens from now on; its id. Workers that run use it within 30 s.

        keep: for how long tokens of the earlier keys are still accepted; 0 refuses them at once, which is for a key
        that is known to others. Raises UsageError where the keys are the program's (`connect(token_keys=...)`).
        """
        internals = self.internals
        what = "keep of rotate_token_keys()"
        if check_duration(keep, what, or_none="") < timedelta(0):
            raise errors.InvalidPolicyError(f"{what} is {in_words(keep)}; it must not be less than 0")
        if internals.keyring.is_given:
            raise errors.UsageError(
                "the keys of tokens are given by connect(token_keys=...): put a new one first there, and take the old "
                "one away once its tokens are used"
            )
        secret, keep_ms = internals.entropy(36), milliseconds(min(keep, DURATION_MAX))
        key = await internals.store.rotate_token_keys(secret[32:].hex(), secret[:32], keep_ms)
        await internals.keyring.read()
        return key.key_id
