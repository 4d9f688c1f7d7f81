"""DataFrames of few rows, recognised before a job of Spark's is begun.

A write by Spark's executors is several jobs, which take longer than everything else while rows are few. What the
optimiser expects a plan to bring is told by `explain`, which costs a few milliseconds, and Spark keeps the plan for the
rows that are fetched next. It is believed where every operator of the plan is one of which Spark knows how much it
brings at most, or guesses too much (joins). Of files it knows the size on disk, which says little of their rows, and
what was handed over from this process row by row is an RDD of unknown size to it: of these a limited number of rows is
fetched, which are thrown away if they are not all. So the rows of a write always come from one evaluation of the frame.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import threading
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from lithify.spark.tasks import SPARK_ERRORS, compute_failed

FETCHED_ROWS_MAX = 20_000
_FILES = "Relation"
_LEAVES_OF_UNKNOWN_SIZE = {"LogicalRDD"}
_ROW_BY_ROW = {"Project", "Filter", "SubqueryAlias"}
_BOUNDED = {
    *_ROW_BY_ROW,
    "Aggregate",
    "Distinct",
    "GlobalLimit",
    "Join",
    "LocalLimit",
    "LocalRelation",
    "OneRowRelation",
    "Range",
    "Repartition",
    "RepartitionByExpression",
    "Sort",
    "Union",
    "Window",
}
_UNITS = {"B": 1, **{f"{letter}iB": 2 ** (10 * n) for n, letter in enumerate("KMGTPE", 1)}}
_LINE = re.compile(r"^[\s:+-]*(\w+)")
_SIZE = re.compile(r"Statistics\(sizeInBytes=([\d.E+]+) (\w+)")


def rows_if_few(frame: DataFrame, bytes_max: int) -> pa.Table | None:
    """The rows of a frame that is expected to hold no more than so many bytes; None: it may hold more."""
    if not bytes_max or frame.isStreaming:
        return None
    try:
        operators, size = read_plan(_explained(frame))
        if size is not None and size <= bytes_max and operators <= _BOUNDED:
            return frame.toArrow()
        of_files = size is not None and size <= bytes_max and operators <= _BOUNDED | {_FILES}
        of_rows = operators & _LEAVES_OF_UNKNOWN_SIZE and operators <= _ROW_BY_ROW | _LEAVES_OF_UNKNOWN_SIZE
        if of_files or of_rows:
            rows = frame.limit(FETCHED_ROWS_MAX + 1).toArrow()
            return rows if rows.num_rows <= FETCHED_ROWS_MAX and rows.nbytes <= bytes_max else None
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    return None


def read_plan(text: str) -> tuple[set[str], float | None]:
    """The operators of an optimised plan as `explain(mode="cost")` prints it, and how many bytes it may bring."""
    _, _, rest = text.partition("== Optimized Logical Plan ==\n")
    lines = rest.partition("\n\n")[0].splitlines()
    names = {found[1] if (found := _LINE.match(line)) else line for line in lines}
    size = _SIZE.search(lines[0]) if lines else None
    if size is None or size[2] not in _UNITS:
        return names, None
    return names, float(size[1]) * _UNITS[size[2]]


class _Heard(io.TextIOBase):
    """In the place of standard output: what this thread prints is kept, what others print goes where it went, and
    everything does once it is `done`, should it still stand there because others have changed places meanwhile.
    """

    def __init__(self, usual: Any) -> None:
        self._usual, self._thread, self.done = usual, threading.get_ident(), False
        self.heard = io.StringIO()

    def write(self, text: str) -> int:
        mine = not self.done and threading.get_ident() == self._thread
        return int((self.heard if mine else self._usual).write(text))

    def flush(self) -> None:
        self._usual.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._usual, name)


def _explained(frame: DataFrame) -> str:
    """Spark's public interface prints plans, and does not answer with them."""
    heard = _Heard(sys.stdout)
    try:
        with contextlib.redirect_stdout(heard):
            frame.explain(mode="cost")
    finally:
        heard.done = True
    return heard.heard.getvalue()
