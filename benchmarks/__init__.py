"""How fast and how large Pledger is: `make bench`, or `python -m benchmarks --help`. See docs/benchmarks.md."""
