"""Other engines beside Pledger, on the same workloads in one run: `make bench PEERS=1`. See docs/benchmarks.md.

`catalogue` says who takes part, and `rivals` has an adapter for each. An adapter runs in the environment of its engine:
`rival`, `asked`, `workloads`, `fleet`, `processes` and `child` therefore use the standard library only. The rest runs
in ours.
"""
