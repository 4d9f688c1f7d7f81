"""Storage, Parquet and text files: the place that reads, writes, syncs, links, lists and deletes."""
