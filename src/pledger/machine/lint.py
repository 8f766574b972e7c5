"""Finds in the text of workflow code what a replay would not repeat. Pure: nothing is imported or run.

Looked at are the functions and classes under `@workflow.defn` and whatever functions and classes of the same module
they name, directly or through each other. Activities are not, nor what is inside `workflow.unsafe.guards_off()`.

What it cannot see: code of other modules, functions that are reached through an attribute of an object, and values.
The guards see those while the code runs; what they cannot see (`datetime.now` on Python 3.11, the order of a set, a
handler that swallows cancellation) is what this is for.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pledger.machine import lint_waits
from pledger.machine.lint_calls import CANCELLATION, DROPPED, SET_ORDER, rule_of, rule_of_method
from pledger.machine.lint_names import Definition, Scope, definitions, own_nodes, running, scope_of
from pledger.machine.rules import AS_COMPLETED, Rule

__all__ = ["Finding", "lint"]

_WORKFLOW: Final = "pledger.workflow"
_ACTIVITY: Final = "pledger.activity"
_SCHEDULING: Final = frozenset(
    {f"{_WORKFLOW}.start_activity", f"{_WORKFLOW}.execute_activity", "asyncio.create_task", "asyncio.ensure_future"}
)
_SETS: Final = frozenset({"builtins.set", "builtins.frozenset"})
#: Give what they are given in the order in which they get it.
_ORDER_KEEPING: Final = frozenset(
    f"builtins.{name}" for name in ("list", "tuple", "enumerate", "iter", "map", "filter")
)
_SET_OPERATORS: Final = (ast.BitOr, ast.BitAnd, ast.BitXor, ast.Sub)
_CANCELLATIONS: Final = frozenset({"asyncio.CancelledError", "asyncio.exceptions.CancelledError"})
_AWAITING: Final = (ast.Await, ast.AsyncFor, ast.AsyncWith)

_ALLOW: Final = re.compile(r"#\s*pledger:\s*allow\b")
#: As Python counts lines; `str.splitlines` knows more ends of lines.
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One place. line, column: 1-based. what: the call or statement, like "time.time()". workflow: the one that reaches
    it, "" where the text cannot be parsed."""

    line: int
    column: int
    what: str
    reason: str
    remedy: str
    workflow: str = ""


def lint(source: str, *, waits: bool = False) -> list[Finding]:
    """All findings in the text of a module, in the order of their places.

    A comment `# pledger: allow` on a line of the call (or on the line of the `for` or `except`) suppresses a finding;
    a reason may follow. A text that does not parse is one finding. waits: also what has no deadline, or no owner.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the text's own literals: not ours to report
            module = ast.parse(source)
    except SyntaxError as error:
        return [_unreadable(error.msg, error.lineno or 1, error.offset or 1)]
    except (ValueError, RecursionError, MemoryError) as error:  # a null character; an expression too deep to parse
        return [_unreadable(str(error) or "it is nested too deeply", 1, 1)]
    if "pledger" not in source:  # then it has no workflow, and most files of a tree are such
        return []
    allowed = {number for number, line in enumerate(_LINE_END.split(source), 1) if _ALLOW.search(line)}
    return sorted(set(_Reach(module, waits=waits).findings(allowed)))


def _unreadable(message: str, line: int, column: int) -> Finding:
    return Finding(line, max(column, 1), "syntax error", message, "mend it; nothing else in this file was checked")


class _Reach:
    """The functions of a module that run as part of a workflow, from the workflows on."""

    def __init__(self, module: ast.Module, *, waits: bool) -> None:
        self._waits = waits
        self._workflows: list[Definition] = []
        self._pending: list[tuple[Definition, str]] = []
        self._seen: set[ast.AST] = set()
        for found in definitions(module, scope_of(module)):
            if _is_decorated(found, f"{_WORKFLOW}.defn") and not isinstance(found.node, ast.Lambda):
                self._workflows.append(found)
                self._add(found, found.node.name)

    def findings(self, allowed: set[int]) -> Iterator[Finding]:
        for workflow_found in self._workflows if self._waits else ():
            for decorator, what, rule in lint_waits.of_workflow(workflow_found):
                if decorator.lineno not in allowed:
                    yield Finding(decorator.lineno, decorator.col_offset + 1, what, rule.reason, rule.remedy)
        while self._pending:
            found, workflow = self._pending.pop()
            if isinstance(found.node, ast.ClassDef):
                self._add_class(found.node, found.scope, workflow)
                continue
            function = _Function(found, waits=self._waits)
            for reached in function.reached():
                self._add(reached, workflow)
            for node, last_line, what, rule in function.problems():
                if allowed.isdisjoint(range(node.lineno, last_line + 1)):
                    yield Finding(node.lineno, node.col_offset + 1, what, rule.reason, rule.remedy, workflow)

    def _add(self, found: Definition, workflow: str) -> None:
        if found.node not in self._seen and not _is_decorated(found, f"{_ACTIVITY}.defn"):
            self._seen.add(found.node)
            self._pending.append((found, workflow))

    def _add_class(self, node: ast.ClassDef, scope: Scope, workflow: str) -> None:
        """Its methods and those of its bases. The class body itself runs at import, in no workflow."""
        for each in own_nodes(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self._add(Definition(each, scope), workflow)
        for base in node.bases:
            if found := scope.definition(base):
                self._add(found, workflow)


_Problem = tuple[ast.expr | ast.stmt | ast.excepthandler, int, str, Rule]


class _Function:
    """One function, without those within it: they are reached by themselves."""

    def __init__(self, found: Definition, *, waits: bool = False) -> None:
        self._waits = waits
        assert not isinstance(found.node, ast.ClassDef)
        self._scope = scope_of(found.node, found.scope)
        self._nodes = [*own_nodes(found.node)]
        for each in [*self._nodes]:
            if isinstance(each, ast.With) and self._turns_guards_off(each):
                unguarded = {inner for statement in each.body for inner in ast.walk(statement)}
                self._nodes = [node for node in self._nodes if node not in unguarded]

    def _turns_guards_off(self, node: ast.With) -> bool:
        return any(
            isinstance(item.context_expr, ast.Call)
            and self._scope.full_name(item.context_expr.func) == f"{_WORKFLOW}.unsafe.guards_off"
            for item in node.items
        )

    def reached(self) -> Iterator[Definition]:
        """What it defines, and what it names: to call it, or to have it called."""
        for node in self._nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                yield Definition(node, self._scope)
            elif isinstance(node, ast.Name) and (found := self._scope.definition(node)):
                yield found

    def problems(self) -> Iterator[_Problem]:
        """Each with the last line on which a comment about it may stand."""
        for node in self._nodes:
            match node:
                case ast.Call():
                    yield from self._call(node)
                case ast.Expr(value=ast.Call() as call) if self._is_activity(call):
                    yield call, _last_line(call), f"{ast.unparse(call.func)}()", DROPPED
                case ast.For() if self._is_set(node.iter) and self._acts(node.body):
                    yield node, node.lineno, "iteration over a set", SET_ORDER
                case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
                    if any(self._is_set(each.iter) for each in node.generators) and self._acts(_made_by(node)):
                        yield node, _last_line(node), "iteration over a set", SET_ORDER
                case ast.Try() | ast.TryStar():
                    yield from self._handlers(node)
                case _:
                    pass

    # Calls ------------------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> Iterator[_Problem]:
        name = self._scope.full_name(call.func)
        rule = rule_of(name, call) if name else None
        if name == "asyncio.as_completed" and call.args and self._starts_coroutines(call.args[0]):
            rule = AS_COMPLETED
        if name == "contextlib.suppress" and any(map(self._is_base_exception, call.args)):
            rule = CANCELLATION
        if rule is None and isinstance(call.func, ast.Attribute) and not name.startswith(_WORKFLOW):
            rule = rule_of_method(call.func.attr)
            name = name if rule is None or name else f"<object>.{call.func.attr}"
        if rule is not None:
            yield call, _last_line(call), f"{name.removeprefix('builtins.')}()", rule
        if self._waits:
            for what, endless in lint_waits.of_call(self._scope, call):
                yield call, _last_line(call), what, endless

    def _is_activity(self, call: ast.Call) -> bool:
        found = self._scope.definition(call.func)
        if found is not None:
            return _is_decorated(found, f"{_ACTIVITY}.defn")
        name = self._scope.full_name(call.func)
        return name in (f"{_WORKFLOW}.execute_activity", f"{_WORKFLOW}.start_activity")

    def _starts_coroutines(self, given: ast.expr) -> bool:
        """Whether it is seen to give coroutines: calls that make no tasks of them."""
        match given:
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                calls = elements
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element) | ast.SetComp(elt=element):
                calls = [element]
            case _:
                return False
        return any(
            isinstance(each, ast.Call)
            and not self._is_activity(each)  # gives a handle, which is a future
            and not ast.unparse(each.func).endswith(("create_task", "ensure_future"))
            for each in calls
        )

    # Sets -------------------------------------------------------------------------------------------------------------

    def _is_set(self, given: ast.expr) -> bool:
        match given:
            case ast.Set() | ast.SetComp():
                return True
            case ast.BinOp(left=left, op=operator, right=right):
                return isinstance(operator, _SET_OPERATORS) and (self._is_set(left) or self._is_set(right))
            case ast.Call(func=func, args=args):
                name = self._scope.full_name(func)
                return name in _SETS or (name in _ORDER_KEEPING and any(map(self._is_set, args)))
            case _:
                return False

    def _acts(self, nodes: Sequence[ast.AST]) -> bool:
        """Whether it awaits or schedules anything."""
        return any(
            isinstance(each, _AWAITING) or (isinstance(each, ast.Call) and self._schedules(each))
            for node in nodes
            for each in ast.walk(node)
        )

    def _schedules(self, call: ast.Call) -> bool:
        found = self._scope.definition(call.func)
        if found is not None and isinstance(found.node, ast.AsyncFunctionDef):
            return True
        is_task = isinstance(call.func, ast.Attribute) and call.func.attr == "create_task"
        return is_task or self._is_activity(call) or self._scope.full_name(call.func) in _SCHEDULING

    # Cancellation -----------------------------------------------------------------------------------------------------

    def _handlers(self, node: ast.Try | ast.TryStar) -> Iterator[_Problem]:
        """Cancellation arrives where something is awaited, so a handler around anything else cannot swallow it."""
        if not any(isinstance(each, _AWAITING) for each in running(node.body)):
            return
        for handler in node.handlers:
            if self._is_cancellation(handler.type):
                return  # it was dealt with on purpose
            if (handler.type is None or self._is_base_exception(handler.type)) and not any(
                isinstance(each, ast.Raise) for each in running(handler.body)
            ):
                what = "except" if handler.type is None else f"except {ast.unparse(handler.type)}"
                yield handler, handler.lineno, f"{what}:", CANCELLATION

    def _is_cancellation(self, caught: ast.expr | None) -> bool:
        each = caught.elts if isinstance(caught, ast.Tuple) else [] if caught is None else [caught]
        return any(self._scope.full_name(one) in _CANCELLATIONS for one in each)

    def _is_base_exception(self, caught: ast.expr) -> bool:
        each = caught.elts if isinstance(caught, ast.Tuple) else [caught]
        return any(self._scope.full_name(one) == "builtins.BaseException" for one in each)


def _is_decorated(found: Definition, decorator: str) -> bool:
    """Whether `@decorator` or `@decorator(...)` stands above it, under whatever name it was imported."""
    given = [] if isinstance(found.node, ast.Lambda) else found.node.decorator_list
    return any(found.scope.full_name(each.func if isinstance(each, ast.Call) else each) == decorator for each in given)


def _made_by(node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> list[ast.expr]:
    """What a comprehension evaluates once per item."""
    made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
    return made + [condition for each in node.generators for condition in each.ifs]


def _last_line(node: ast.expr) -> int:
    return node.lineno if node.end_lineno is None else node.end_lineno
