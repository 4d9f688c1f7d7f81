"""A binary index of Parquet footers: derived from them, never authoritative. The format: docs/format.md."""
