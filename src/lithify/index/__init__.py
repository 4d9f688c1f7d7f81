"""What all Parquet footers say, as one mapped file (the sidecar), and what a predicate rules out. Derived from the
files, never authoritative. The format: docs/format.md.
"""
