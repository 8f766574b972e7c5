"""JSON as a tree of dict, list, str, int, float, bool and None: its text, its limits, and the paths that errors name.

The text is strict (RFC 8259, UTF-8). Integers are exact at any size, "-0.0" keeps its sign, NUL is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from pledger.errors import PayloadError

#: Containers inside containers. Peers: Rust's serde_json stops at 128; more than this is a mistake or an attack.
NESTING_MAX: Final = 100
#: A text of at most so many bytes cannot nest deeper: each level takes two brackets.
_SURELY_FLAT: Final = 2 * NESTING_MAX
#: Python's own default against quadratic conversion (CVE-2020-10735). msgspec reads no more, and counts the sign.
INT_DIGITS_MAX: Final = 4_300
_LONG_INTEGER: Final = re.compile(rb"-[0-9]{%d}|(?<![0-9])[0-9]{%d}" % (INT_DIGITS_MAX, INT_DIGITS_MAX + 1))
_INT_END: Final = 10**INT_DIGITS_MAX

#: A step into a value: a key or field name, or an index.
Step: TypeAlias = str | int

_STEP_CHARS_MAX: Final = 60
_PATH_CHARS_MAX: Final = 200


class Misfit(Exception):  # noqa: N818 - a verdict between codecs, which no user catches
    """What is wrong at one place of a value or a tree, and what to do. At the door it becomes a PayloadError.

    steps: the way to the place, innermost first; each container adds its own as the misfit passes through.
    """

    def __init__(self, problem: str, steps: Iterable[Step] = ()) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[Step] = [*steps]

    def under(self, step: Step) -> None:
        """Adds the step from the container around, as the misfit passes through it."""
        self.steps.append(step)

    @property
    def path(self) -> str:
        """Like `$.lines[0].price`; keys that are no identifiers are quoted as in JSON."""
        return "$" + "".join(map(_step_text, reversed(self.steps)))

    def error(self, what: str) -> PayloadError:
        """For users. what: a clause like "the result of charge() cannot be kept"."""
        path = self.path
        shown = path if len(path) <= _PATH_CHARS_MAX else f"{path[: _PATH_CHARS_MAX - 40]} ... {path[-40:]}"
        return PayloadError(f"{what}: at {shown}: {self.problem}", path=path)


def _step_text(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if len(step) > _STEP_CHARS_MAX:
        step = step[:_STEP_CHARS_MAX] + "..."
    if step.isidentifier():
        return f".{step}"
    import json  # noqa: PLC0415 - msgspec refuses half of a surrogate pair, and nothing else needs it

    return f"[{json.dumps(step)}]"


_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder().decode


def dumps(tree: object) -> bytes:
    """The text of a tree. Raises Misfit for a lone surrogate, a too long integer or too deep nesting.

    Floats must be finite: the codecs see to it, because msgspec would write NaN as null.
    """
    try:
        text = _encode(tree)
    except ValueError as error:  # lone surrogates, and integers beyond the interpreter's limit
        raise _unwritable(tree) or Misfit(f"it cannot be written as JSON: {error}") from None
    if len(text) > _SURELY_FLAT:
        # The interpreter's own limit may be lifted and forgets the sign; what is written must be readable everywhere.
        if len(text) > INT_DIGITS_MAX and _LONG_INTEGER.search(text) and (misfit := _unwritable(tree)) is not None:
            raise misfit
        _check_nesting(tree, text)
    return text


def loads(text: bytes) -> object:
    """The tree of a text. Raises Misfit when it is not strict JSON or breaks a limit."""
    try:
        tree = _decode(text)
    except RecursionError:
        raise _too_deep() from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misfit(
            f"the text is not JSON that can be kept ({error}). Send strict JSON (RFC 8259) in UTF-8, with integers of "
            f"at most {INT_DIGITS_MAX:,} digits and numbers that a double holds."
        ) from None
    if len(text) > _SURELY_FLAT:
        _check_nesting(tree, text)
    return tree


def canonical(tree: object) -> bytes:
    """The text with the keys of every object in order: equal trees have equal texts."""
    return _encode_sorted(tree)


def walk(tree: object) -> Iterator[tuple[object, tuple[Step, ...]]]:
    """Every node of a tree with the steps to it, innermost first. Slow: for explaining, after something has failed."""
    stack: list[tuple[object, tuple[Step, ...]]] = [(tree, ())]
    while stack:
        node, steps = stack.pop()
        yield node, steps
        if isinstance(node, dict):
            stack += [
                (child, (key if isinstance(key, (str, int)) else str(key), *steps)) for key, child in node.items()
            ]
        elif isinstance(node, (list, tuple, set, frozenset)):
            stack += [(child, (index, *steps)) for index, child in enumerate(node)]


def _unwritable(tree: object) -> Misfit | None:
    for node, steps in walk(tree):
        if isinstance(node, dict):
            for key in node:
                if _has_surrogates(key):
                    return Misfit(
                        "a key holds half of a surrogate pair, which is not text. " + _SURROGATE_REMEDY, (key, *steps)
                    )
        elif isinstance(node, str) and _has_surrogates(node):
            return Misfit("the string holds half of a surrogate pair, which is not text. " + _SURROGATE_REMEDY, steps)
        elif isinstance(node, int) and not -_INT_END < 10 * node < 10 * _INT_END:
            return Misfit(f"the integer has over {INT_DIGITS_MAX:,} digits, sign included. Keep it as bytes.", steps)
    return None


_SURROGATE_REMEDY: Final = "Cut text between characters, or keep it as bytes; nothing is stripped silently."


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _too_deep(steps: Iterable[Step] = ()) -> Misfit:
    return Misfit(
        f"nested deeper than {NESTING_MAX} levels, or it contains itself. Flatten it, or keep the depth in a store of "
        "your own and pass a reference.",
        steps,
    )


def check_depth(depth: int) -> None:
    """Raises Misfit for a container at `depth` (0 for the root) that is one too many."""
    if depth >= NESTING_MAX:
        raise _too_deep()


def _check_nesting(tree: object, text: bytes) -> None:
    # Counting brackets is a cheap upper bound, which almost every payload stays below.
    if text.count(b"[") + text.count(b"{") <= NESTING_MAX:
        return
    level = [tree]
    for _ in range(NESTING_MAX):
        level = [child for node in level for child in _children(node) if type(child) is dict or type(child) is list]
        if not level:
            return
    raise next(
        _too_deep(steps) for node, steps in walk(tree) if len(steps) == NESTING_MAX and isinstance(node, (dict, list))
    )


def _children(node: object) -> Iterable[object]:
    return node.values() if type(node) is dict else node if type(node) is list else ()
