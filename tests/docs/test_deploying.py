"""The manifests of the page on deploying are what their readers would copy: they parse, and what they say fits."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from markdown_it import MarkdownIt

from pledger.cli.app import app

PAGE = Path(__file__).parents[2] / "docs/deploying.md"


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    """By title, without the folder."""
    found = {}
    for token in MarkdownIt().parse(PAGE.read_text(encoding="utf-8")):
        title = re.search(r'title="(?:.*/)?([^"/]+)"', token.info)
        if token.type == "fence" and title:
            found[title[1]] = token.content
    return found


def grace_s(arguments: Sequence[str]) -> float:
    """Of `pledger worker` with these arguments, which it must know."""
    worker = typer.main.get_command(app).commands["worker"]  # type: ignore[attr-defined] # a group
    context = worker.make_context("worker", list(arguments))
    grace: timedelta = context.params["grace"]
    return grace.total_seconds()


def test_a_unit_waits_longer_than_the_worker(blocks: dict[str, str]) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # as configparser documents it
    unit.read_string(blocks["pledger@.service"])
    service = unit["Service"]
    program, command, *arguments = shlex.split(service["ExecStart"])
    assert (Path(program).name, command) == ("pledger", "worker")
    assert float(service["TimeoutStopSec"]) > grace_s(arguments)


def test_a_container_hands_the_signal_to_the_worker(blocks: dict[str, str]) -> None:
    said = {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in blocks["Dockerfile"].splitlines()}
    program, command, *arguments = json.loads(said["ENTRYPOINT"])
    assert (program, command) == ("pledger", "worker")
    grace_s([*arguments, *json.loads(said["CMD"])])


def test_a_pod_is_patient_and_nothing_waits_in_a_rollout(blocks: dict[str, str]) -> None:
    deployment, budget = yaml.safe_load_all(blocks["workers.yaml"])
    pod: dict[str, Any] = deployment["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert pod["spec"]["terminationGracePeriodSeconds"] > grace_s(["orders.app", *container["args"]])
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == budget["spec"]["selector"]["matchLabels"]
