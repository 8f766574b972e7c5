"""What a client sends to a run: the arguments of a start, a signal or a query, checked where they are given.

Nothing of a run is at hand where its errors are read later, in a log or by another team: so each says which workflow
the call was for.
"""

from __future__ import annotations

from typing import Any

from pledger import errors
from pledger.history import payloads
from pledger.history.payloads import Signature


def encode_call(signature: Signature | None, args: tuple[Any, ...], *, call: str, what: str, bytes_max: int) -> bytes:
    """The arguments as a JSON array.

    signature: None where only the name is known. call: the name as code calls it. what: in words, like "the input of
    workflow 'order-1' (fulfil)". Raises UsageError for arguments that do not fit the parameters, PayloadError for a
    value that cannot be kept, PayloadTooLargeError for more than bytes_max.
    """
    try:
        encoded = payloads.encode_args_untyped(args) if signature is None else signature.encode_args(args, {})
    except errors.PayloadError as error:
        raise errors.PayloadError(f"{what}: {error.message}", path=error.path) from error.__cause__
    except TypeError:
        refusal = None if signature is None else signature.refusal(args)
        if signature is None or refusal is None:
            raise
        given = f"{len(args)} argument{'' if len(args) == 1 else 's'}"
        raise errors.UsageError(
            f"{what}: {call}{signature.parameters} was given {given}: {refusal}. Give it what it takes; "
            "parameters with a default may be left out at the end"
        ) from None
    payloads.check_size(encoded, what, bytes_max)
    return encoded
