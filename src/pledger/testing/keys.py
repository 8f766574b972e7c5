"""Idempotency keys as the outside gets them: one is never used for two inputs, and tokens go up over a reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pledger.engine.attempt import Attempt
    from pledger.testing.findings import Findings
    from pledger.testing.records import Record


class Keys:
    """findings: where to say what was looked at and what broke it."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._inputs: dict[tuple[str, str], tuple[str, bytes]] = {}
        #: The highest fencing token of a key that each run has shown.
        self._tokens: dict[tuple[str, str], dict[str, int]] = {}

    def attempt_began(self, attempt: Attempt, record: Record | None, what: str) -> None:
        """record: of its run."""
        key, token = (attempt.identity.namespace, attempt.idempotency_key), attempt.fencing_token
        asked = (attempt.command.activity_type, attempt.command.args)
        if attempt.command.idempotency_key is None or attempt.command.options.tokens_before is not None:
            # A key that the code has declared is the affair of its author.
            self._findings.checks("one key, one input")
            if self._inputs.setdefault(key, asked) != asked:
                self._findings.violated("one key, one input", f"{what} goes by {key[1]}, as {self._inputs[key]} did")
        tokens = self._tokens.setdefault(key, {})
        run_id = attempt.identity.run_id
        for reset in [] if record is None else record.state.resets:
            if (before := tokens.get(reset.base_run_id)) is not None and reset.base_run_id != run_id:
                self._findings.checks("tokens go up over a reset")
                if before >= token:
                    self._findings.violated(
                        "tokens go up over a reset",
                        f"{what} has token {token} for {key[1]}, run {reset.base_run_id} had {before}",
                    )
        tokens[run_id] = max(token, tokens.get(run_id, 0))
