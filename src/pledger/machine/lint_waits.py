"""What has no deadline, or no owner, in the text of workflow code: for `pledger check --waits`. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from pledger.machine.lint_names import Definition, Scope
from pledger.machine.rules import Rule

_WORKFLOW: Final = "pledger.workflow"

NO_DEADLINE: Final = Rule("nothing says when its runs must be over", "deadline=timedelta(...)")
NO_OWNER: Final = Rule("nobody is named who answers for its runs", 'owner="a team"')
ENDLESS: Final = Rule("it may last for ever, and is never late", "timeout=, or deadline= and owner=")


def of_workflow(found: Definition) -> Iterator[tuple[ast.expr, str, Rule]]:
    """found: a function or class under `@workflow.defn`."""
    if isinstance(found.node, ast.Lambda):
        return
    for decorator in found.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if found.scope.full_name(called) != f"{_WORKFLOW}.defn":
            continue
        stated = _stated(decorator) if isinstance(decorator, ast.Call) else set()
        for name, rule in (("deadline", NO_DEADLINE), ("owner", NO_OWNER)):
            if stated is not None and name not in stated:
                yield decorator, f"workflow {found.node.name} without {name}", rule


def of_call(scope: Scope, call: ast.Call) -> Iterator[tuple[str, Rule]]:
    """A wait that nothing bounds."""
    if scope.full_name(call.func) == f"{_WORKFLOW}.wait_condition":
        stated = _stated(call)
        if stated is not None and stated.isdisjoint(("timeout", "deadline")):
            yield f"{_WORKFLOW}.wait_condition()", ENDLESS


def _stated(call: ast.Call) -> set[str] | None:
    """The options of the call but those that are None; None where `**options` may have any."""
    if any(each.arg is None for each in call.keywords):
        return None
    return {
        str(each.arg)
        for each in call.keywords
        if not (isinstance(each.value, ast.Constant) and each.value.value is None)
    }
