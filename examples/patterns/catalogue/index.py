"""All of them, by number."""

from examples.patterns.catalogue import (
    basic,
    branching,
    cancellation,
    instances,
    iteration,
    states,
    termination,
    triggers,
)
from examples.patterns.catalogue.pattern import Pattern

FAMILIES = [basic, branching, instances, states, cancellation, iteration, termination, triggers]
PATTERNS: list[Pattern] = sorted(
    (pattern for family in FAMILIES for pattern in family.PATTERNS), key=lambda pattern: pattern.number
)
#: `fine` is started by a pattern only.
WORKFLOWS = [*(pattern.workflow for pattern in PATTERNS), instances.fine]
