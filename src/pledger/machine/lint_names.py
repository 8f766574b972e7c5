"""What the names in a module stand for, as far as its text tells: imports, its own functions, or something else.

Follows Python's scopes: a parameter `random` hides the module of that name, and the names of a class body are not seen
by its methods.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class, and the scope that it is defined in."""

    node: FunctionNode | ast.ClassDef
    scope: Scope


#: The full name of what was imported, or a definition of this module, or None: anything else.
Meaning: TypeAlias = str | Definition | None


@dataclass(slots=True, eq=False)
class Scope:
    """The names of a module or a function. parent: where a name is looked up next."""

    parent: Scope | None = None
    names: dict[str, Meaning] = field(default_factory=dict)

    def meaning(self, name: str) -> Meaning:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return f"builtins.{name}" if hasattr(builtins, name) else None

    def full_name(self, expression: ast.expr) -> str:
        """Like "datetime.datetime.now" for `dt.now` after `from datetime import datetime as dt`; "" where unknown."""
        attributes: list[str] = []
        while isinstance(expression, ast.Attribute):
            attributes.append(expression.attr)
            expression = expression.value
        found = self.meaning(expression.id) if isinstance(expression, ast.Name) else None
        return ".".join((found, *reversed(attributes))) if isinstance(found, str) else ""

    def definition(self, expression: ast.expr) -> Definition | None:
        found = self.meaning(expression.id) if isinstance(expression, ast.Name) else None
        return found if isinstance(found, Definition) else None


def scope_of(node: ast.Module | FunctionNode, parent: Scope | None = None) -> Scope:
    """The names that a module or a function binds itself."""
    scope = Scope(parent)
    if not isinstance(node, ast.Module):
        scope.names.update(dict.fromkeys(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)))
    for each in own_nodes(node):
        _bind(scope, each)
    return scope


def _bind(scope: Scope, node: ast.AST) -> None:
    match node:
        case ast.Import():
            for alias in node.names:
                top = alias.name.partition(".")[0]
                scope.names[alias.asname or top] = alias.name if alias.asname else top
        case ast.ImportFrom():
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                scope.names[alias.asname or alias.name] = f"{module}.{alias.name}"
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            scope.names[node.name] = Definition(node, scope)
        case ast.Name(ctx=ast.Store()):
            scope.names[node.id] = None
        case ast.ExceptHandler(name=str(name)):
            scope.names[name] = None
        case _:
            pass


def own_nodes(node: ast.Module | FunctionNode | ast.ClassDef) -> Iterator[ast.AST]:
    """What runs when this module, function or class body does."""
    return running(node.body if isinstance(node.body, list) else [node.body])


def running(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """These and everything in them, but of functions and classes only that they are defined. Without recursion, since
    an expression may be deeper than Python's stack."""
    pending = [*reversed(nodes)]
    while pending:
        each = pending.pop()
        yield each
        if not isinstance(each, (*_DEFINITIONS, ast.Lambda)):
            pending += reversed([*ast.iter_child_nodes(each)])
            continue
        if not isinstance(each, ast.Lambda):
            pending += each.decorator_list
        if not isinstance(each, ast.ClassDef):
            pending += [*each.args.defaults, *filter(None, each.args.kw_defaults)]


def definitions(node: ast.Module | FunctionNode | ast.ClassDef, scope: Scope) -> Iterator[Definition]:
    """Every function and class within, at any depth. scope: where the names of `node` itself are looked up."""
    for each in own_nodes(node):
        if isinstance(each, _DEFINITIONS):
            yield Definition(each, scope)
            yield from definitions(each, scope if isinstance(each, ast.ClassDef) else scope_of(each, scope))
