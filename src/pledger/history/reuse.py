"""What becomes of a start whose workflow id another run has, or has had."""

from __future__ import annotations

from enum import Enum


class IdReusePolicy(Enum):
    """What a start does when a *closed* run has the same workflow id. By default the same input gives the same run.

    Of a child SAME_INPUT is as REJECT_DUPLICATE: the run of somebody else is nobody's child.
    """

    SAME_INPUT = "same_input"
    ALLOW_DUPLICATE = "allow_duplicate"
    ALLOW_DUPLICATE_FAILED_ONLY = "allow_duplicate_failed_only"
    REJECT_DUPLICATE = "reject_duplicate"
