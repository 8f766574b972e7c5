"""docs/patterns.md has every pattern of the catalogue once, by its number and name, and quotes the code that is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from examples.patterns.catalogue.index import FAMILIES, PATTERNS
from pledger.machine.definitions import WorkflowDefinition

PAGE = Path(__file__).parents[2] / "docs" / "patterns.md"

#: As the catalogue has them.
NAMES = """
1 Sequence
2 Parallel Split
3 Synchronization
4 Exclusive Choice
5 Simple Merge
6 Multi-Choice
7 Structured Synchronizing Merge
8 Multi-Merge
9 Structured Discriminator
10 Arbitrary Cycles
11 Implicit Termination
12 Multiple Instances without Synchronization
13 Multiple Instances with a Priori Design-Time Knowledge
14 Multiple Instances with a Priori Run-Time Knowledge
15 Multiple Instances without a Priori Run-Time Knowledge
16 Deferred Choice
17 Interleaved Parallel Routing
18 Milestone
19 Cancel Task
20 Cancel Case
21 Structured Loop
22 Recursion
23 Transient Trigger
24 Persistent Trigger
25 Cancel Region
26 Cancel Multiple Instance Activity
27 Complete Multiple Instance Activity
28 Blocking Discriminator
29 Cancelling Discriminator
30 Structured Partial Join
31 Blocking Partial Join
32 Cancelling Partial Join
33 Generalised AND-Join
34 Static Partial Join for Multiple Instances
35 Cancelling Partial Join for Multiple Instances
36 Dynamic Partial Join for Multiple Instances
37 Local Synchronizing Merge
38 General Synchronizing Merge
39 Critical Section
40 Interleaved Routing
41 Thread Merge
42 Thread Split
43 Explicit Termination
"""


def sections() -> Iterator[tuple[str, list[str], str]]:
    """Of each heading WCP-n: what it says, the words below it, and the code."""
    heading, words, code = "", [], ""
    tokens = MarkdownIt().parse(PAGE.read_text(encoding="utf-8"))
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open":
            if heading:
                yield heading, words, code
            heading = token.content.removeprefix("WCP-") if token.content.startswith("WCP-") else ""
            words, code = [], ""
        elif token.type == "inline":
            words.append(token.content)
        elif token.type == "fence":
            code += token.content
    if heading:
        yield heading, words, code


def test_each_pattern_is_there_once_by_number_and_name() -> None:
    names = NAMES.split("\n")[1:-1]
    assert [f"{pattern.number} {pattern.name}" for pattern in PATTERNS] == names
    headings = [heading for heading, _, _ in sections()]
    assert sorted(headings, key=lambda heading: int(heading.split()[0])) == names


def test_each_has_words_and_the_code_that_is_run() -> None:
    patterns = {f"{pattern.number} {pattern.name}": pattern for pattern in PATTERNS}
    sources = [Path(family.__file__ or "").read_text(encoding="utf-8") for family in FAMILIES]
    for heading, words, code in sections():
        assert words, heading
        defined = {node.name for node in ast.parse(code).body if isinstance(node, ast.AsyncFunctionDef | ast.ClassDef)}
        assert WorkflowDefinition.of(patterns[heading].workflow).name in defined, heading
        for quoted in re.split(r"\n\n\n", code.strip()):
            assert any(f"\n{quoted}\n" in source for source in sources), (
                f"{heading}: no code of the catalogue\n{quoted}"
            )
