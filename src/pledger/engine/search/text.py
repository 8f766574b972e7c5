"""A filter as it is written, parsed by sqlglot. Its tree is read by `meaning`; no text of it becomes SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pledger.engine.search.errors import refuse

if TYPE_CHECKING:
    from sqlglot import Expr

#: Of one filter. sqlglot's parser calls itself for each bracket.
CHARACTERS_MAX: Final = 10_000
DEPTH_MAX: Final = 50

_EXAMPLE: Final = "Write it like: status = 'running' and type = 'fulfil' order by started_at desc"


@dataclass(frozen=True, slots=True)
class Word:
    """A name in the text. at: its position, from 0."""

    name: str
    at: int | None


@dataclass(frozen=True, slots=True)
class Sorted:
    """A part of `order by`."""

    word: Word
    descending: bool


@dataclass(frozen=True, slots=True)
class Written:
    """A filter. tree: of its conditions, or None where it has none. names: all that stand in it."""

    text: str
    tree: Expr | None
    order: tuple[Sorted, ...]
    names: frozenset[str]
    uses_now: bool


def parse(text: str) -> Written:
    """Raises InvalidFilterError for what is no filter."""
    if not text.strip():
        return Written(text, None, (), frozenset(), uses_now=False)
    # Imported at the first filter: it is big, and most programs never list.
    import sqlglot  # noqa: PLC0415
    from sqlglot import errors as wrong  # noqa: PLC0415
    from sqlglot import exp  # noqa: PLC0415

    if len(text) > CHARACTERS_MAX:
        refuse(f"{text[:60]}...", f"it has {len(text):,} characters, the most is {CHARACTERS_MAX:,}")
    try:
        tokens = sqlglot.tokenize(text)
        condition, order = _split(text, tokens)
        tree = sqlglot.parse_one(condition, into=exp.Condition) if condition.strip() else None
    except wrong.ParseError as error:
        [first, *_] = error.errors or [{}]
        at = first.get("col")
        why = str(first.get("description") or error).splitlines()[0]
        if why.startswith("Required keyword"):
            why = "something is missing"
        refuse(text, f"it does not parse ({why}). {_EXAMPLE}", None if at is None else max(0, at - 1))
    except wrong.SqlglotError:
        refuse(text, f"it does not parse; is a quote left open? {_EXAMPLE}")
    except RecursionError:
        refuse(text, "its brackets are nested too deeply")
    names = {each.word.name for each in order}
    uses_now = False
    if tree is not None:
        _check_depth(text, tree)
        names |= {each.name for each in tree.find_all(exp.Column)}
        uses_now = any(is_now(each) for each in tree.walk())
    return Written(text, tree, order, frozenset(names), uses_now)


def _check_depth(text: str, tree: Expr) -> None:
    """Of brackets and `not`. Chains of `and` and `or` are flat, however long."""
    from sqlglot import exp  # noqa: PLC0415 - see parse

    depths = {id(tree): 0}
    for node in tree.walk(bfs=True):
        depth = depths.setdefault(id(node), 0)
        if depth > DEPTH_MAX:
            refuse(text, f"its brackets are nested more than {DEPTH_MAX} deep")
        for child in node.iter_expressions():
            depths[id(child)] = depth + (not (isinstance(child, exp.And | exp.Or) and type(child) is type(node)))


def word(found: Expr) -> Word:
    """Of a column."""
    start = found.this.meta.get("start") if hasattr(found.this, "meta") else None
    return Word(found.name, start)


def place(found: Expr) -> int | None:
    """Where it begins, as far as sqlglot has noted it."""
    for node in found.walk():
        start = node.meta.get("start")
        if isinstance(start, int):
            return start
    return None


def is_now(found: Expr) -> bool:
    """Whether it is `now()`, `now` being no name of a run's."""
    from sqlglot import exp  # noqa: PLC0415 - see parse

    return isinstance(found, exp.CurrentTimestamp) or (
        isinstance(found, exp.Anonymous) and found.name.lower() == "now" and not found.expressions
    )


def _split(text: str, tokens: list[Any]) -> tuple[str, tuple[Sorted, ...]]:
    """The text of the conditions, and the order."""
    from sqlglot import TokenType  # noqa: PLC0415 - see parse

    depth = 0
    for number, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.SEMICOLON:
            refuse(text, "one filter is one condition", token.start)
        depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(kind, 0)
        if kind is TokenType.GLOB:
            refuse(text, "there is no glob; ask for a prefix: starts_with(workflow_id, 'order-')", token.start)
        is_starts_with = kind is TokenType.VAR and token.text.lower() == "starts_with"
        if is_starts_with and [each.token_type for each in tokens[number + 1 : number + 2]] == [TokenType.STRING]:
            # As the field writes it: `workflow_id starts_with 'order-'`. GLOB is an operator of the parser's, and has
            # no other use here.
            text = f"{text[: token.start]}{'GLOB':<11}{text[token.end + 1 :]}"
        if kind is TokenType.ORDER_BY and depth == 0:
            return text[: token.start], _order(text, tokens[number + 1 :])
    return text, ()


def _order(text: str, tokens: list[Any]) -> tuple[Sorted, ...]:
    from sqlglot import TokenType  # noqa: PLC0415 - see parse

    found: list[Sorted] = []
    parts: list[list[Any]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.COMMA:
            parts.append([])
        else:
            parts[-1].append(token)
    for part in parts:
        match [each.token_type for each in part]:
            case [TokenType.COMMA]:
                pass
            case [_, TokenType.DESC]:
                found.append(Sorted(Word(part[0].text, part[0].start), descending=True))
            case [_, TokenType.ASC] | [_]:
                found.append(Sorted(Word(part[0].text, part[0].start), descending=False))
            case []:
                refuse(text, "`order by` wants a name, like: order by started_at desc")
            case _:
                refuse(text, "`order by` takes names, each with asc or desc", part[0].start)
    return tuple(found)
