"""Micro-batches and folders into tables, exactly once."""
