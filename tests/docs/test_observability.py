"""docs/observability.md has every metric, and its alerts ask for metrics and labels that are there."""

import re
from pathlib import Path
from typing import Any

import yaml

from pledger.metrics import DEFAULT_PORT, families

PAGE = (Path(__file__).parents[2] / "docs/observability.md").read_text(encoding="utf-8")

#: What a row does not repeat.
USUAL = {"namespace", "task_queue", "workflow_type", "activity_type"}


def test_the_table_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `(pledger_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", PAGE, re.MULTILINE)
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in rows}
    assert len(told) == len(rows)
    assert told == {each.exposed("pledger_"): (each.kind, set(each.labels) - USUAL) for each in families.ALL}


def test_the_port_is_that_of_the_code() -> None:
    assert f"--metrics-port {DEFAULT_PORT}" in PAGE


def test_every_label_is_bounded() -> None:
    ids = {"workflow_id", "run_id", "order", "attempt", "worker", "identity", "error", "message"}
    assert not any(ids & set(each.labels) for each in families.ALL)
    assert all(each.labels[0] == "namespace" for each in families.ALL)


def test_alerts_ask_for_what_is_there() -> None:
    block = re.search(r'```yaml title="alerts.yml"\n(.*?)```', PAGE, re.DOTALL)
    assert block
    [group] = yaml.safe_load(block[1])["groups"]
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        _check(rule)
    assert len({each["alert"] for each in group["rules"]}) == len(group["rules"])


def _check(rule: dict[str, Any]) -> None:
    """As far as one can without a server: its metrics, their labels, its brackets, its annotations."""
    expression = rule["expr"]
    series = _series()
    named = re.findall(r"pledger_\w+", expression)
    assert named, rule
    has = set.union(*(series[name] for name in named))
    by = {label.strip() for found in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in found.split(",")}
    matched = set(re.findall(r"[{,]\s*(\w+)=", expression))
    assert by | matched <= has | {"le"}, rule
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= by, rule
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing), rule
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def _series() -> dict[str, set[str]]:
    """The labels of each, by its name as a query has it."""
    found = {}
    for each in families.ALL:
        name = each.exposed("pledger_")
        ends = ("_bucket", "_sum", "_count") if each.kind == "histogram" else ("",)
        found |= {f"{name}{end}": set(each.labels) for end in ends}
    return found
