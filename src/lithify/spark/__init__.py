"""Spark, the data plane: the only package that imports pyspark."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["LithifyDataSource"]


def __getattr__(name: str) -> Any:
    """The data source is looked for here, and put together further up, where tables are opened."""
    if name != "LithifyDataSource":
        raise AttributeError(f"module 'lithify.spark' has no attribute {name!r}")
    return import_module("lithify").LithifyDataSource
