"""Function calls per step: a measure of cost that no other program on the machine disturbs.

What they are is written down in `calls.json` for each version of Python; a change that adds calls shows there, also on
a machine too busy to measure times.
"""

import platform
from pathlib import Path
from typing import Final

import msgspec

#: The workloads whose steps are counted.
COUNTED: Final = ("W2", "W7")

#: By which share the count may move before it says something. Batches form by time, so it is not quite the same twice.
TOLERANCE: Final = 0.05

_FILE: Final = Path(__file__).with_name("calls.json")


def baseline(workload: str) -> float | None:
    """Calls per step as written down for this version of Python, or None."""
    return _read().get(_version(), {}).get(workload)


def write_baseline(per_step: dict[str, float]) -> None:
    written = _read()
    written[_version()] = {workload: round(count, 1) for workload, count in per_step.items()}
    _FILE.write_bytes(msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n")


def _read() -> dict[str, dict[str, float]]:
    return msgspec.json.decode(_FILE.read_bytes(), type=dict[str, dict[str, float]]) if _FILE.exists() else {}


def _version() -> str:
    return ".".join(platform.python_version_tuple()[:2])
