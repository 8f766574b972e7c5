"""What the processors are busy with. The standard library only: the processes of other engines measure with it too."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: Cores that others may use before a figure is called disturbed.
QUIET_CORES: Final = 0.2

_STAT: Final = Path("/proc/stat")


def own_cpu_s() -> float:
    """User and system time of this process and the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def busy_cpu_s() -> float | None:
    """Time that all cores together have been busy, since the machine started."""
    if not _STAT.exists():
        return None
    fields = [int(each) for each in _STAT.read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class LoadMeter:
    """How many cores everything else has used since this was made. own_s: the time that is not everything else's."""

    def __init__(self, own_s: Callable[[], float] = own_cpu_s) -> None:
        self._measure_own_s = own_s
        self._started = time.perf_counter()
        self._busy_s = busy_cpu_s()
        self._own_s = own_s()

    def other_cores(self) -> float | None:
        busy_s = busy_cpu_s()
        if busy_s is None or self._busy_s is None:
            return None
        others_s = (busy_s - self._busy_s) - (self._measure_own_s() - self._own_s)
        # The kernel counts in hundredths of a second: a short wait can come out a little below nothing.
        return max(0.0, others_s / (time.perf_counter() - self._started))


def wait_until_quiet(patience_s: float, own_s: Callable[[], float] = own_cpu_s) -> None:
    """Wait until others leave the machine alone for half a second, or patience is at its end. own_s: as for
    `LoadMeter`."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        meter = LoadMeter(own_s)
        time.sleep(0.5)
        others = meter.other_cores()
        if others is None or others <= QUIET_CORES:
            return
