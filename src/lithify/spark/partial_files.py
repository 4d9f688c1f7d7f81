"""Parquet files whose rows give the columns that their file has, and leave the others as they are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lithify.core.names import GIVEN, given_text
from lithify.files.open_parquet import open_file


def saying(files: Sequence[str], known: Collection[str], frame_of: Callable[[Sequence[str]], DataFrame]) -> DataFrame:
    """Their rows, with what each gives of the columns that are `known`. `frame_of` reads files of the same columns."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        alike.setdefault(tuple(open_file(file).schema_arrow.names), []).append(file)
    parts = []
    for some in alike.values():
        frame = frame_of(some)
        given = given_text(name for name in frame.columns if name in known)
        parts.append(frame.withColumn(GIVEN, F.lit(given)))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
