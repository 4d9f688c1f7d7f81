"""The open logs of one table, its snapshots, pins and tags."""
