"""The workloads, one module each. What they are and what they must reach is the table in docs/benchmarks.md."""

from collections.abc import Mapping
from typing import Final

from benchmarks.figures import Workload
from benchmarks.workloads import (
    w1_latency,
    w2_throughput,
    w3_fan_out,
    w4_signals,
    w5_sleepers,
    w6_recovery,
    w7_long_history,
    w8_footprint,
    w9_two_processes,
    w10_remote,
    w11_timers,
    w12_tenants,
    w13_retention,
    w14_conversation,
)

WORKLOADS: Final[Mapping[str, Workload]] = {
    each.name: each
    for each in (
        w1_latency.WORKLOAD,
        w2_throughput.WORKLOAD,
        w3_fan_out.WORKLOAD,
        w4_signals.WORKLOAD,
        w5_sleepers.WORKLOAD,
        w6_recovery.WORKLOAD,
        w7_long_history.WORKLOAD,
        w8_footprint.WORKLOAD,
        w9_two_processes.WORKLOAD,
        w10_remote.WORKLOAD,
        w11_timers.WORKLOAD,
        w12_tenants.WORKLOAD,
        w13_retention.WORKLOAD,
        w14_conversation.WORKLOAD,
    )
}
