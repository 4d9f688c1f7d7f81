"""Every figure of docs/benchmarks.md, measured: each a ratio against the alternative in the same run."""
