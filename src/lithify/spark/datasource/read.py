"""Reading a partition of a data source, on an executor, with pyarrow and NumPy alone.

Spark has no column pruning for Python sources: the columns are those of the schema that the DataFrame was loaded with.
Batches must have exactly Spark's types, nested fields and nullability included, so each is cast once at the end.

No filter is ever claimed as handled. Filters choose the files and row groups; Spark evaluates all of them again. They
choose only for a DataFrame that is declared to be read once (`prunes`): Spark keeps the partitions of the last filter
that it pushed, and takes them for every later read of the same DataFrame, and for every place of it in one query.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lithify.core.predicates import UNKNOWN, Predicate
from lithify.errors import InvalidRequest, NotFound, cut_here
from lithify.files.footer_cache import open_for
from lithify.files.local_files import bring, is_far
from lithify.files.open_parquet import corrupt
from lithify.files.parquet import completed
from lithify.files.read_proof import Vanished
from lithify.merge.apply import standing
from lithify.spark.datasource.filters import predicate_of
from lithify.spark.datasource.plan import Piece, Rows, ScanPartition, groups_of
from lithify.spark.schemas import spark_schema

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH_ROWS_MAX = 32_768
BATCH_BYTES_MAX = 32 * 2**20


class TableReader(DataSourceReader):
    """`plan` turns a predicate into partitions. It is called where Spark plans, and does not go to the executors."""

    def __init__(
        self,
        columns: pa.Schema,
        wanted: StructType,
        plan: Callable[[Predicate], list[ScanPartition]],
        *,
        prunes: bool = False,
    ) -> None:
        check_wanted(wanted, columns)
        self.columns, self.wanted = columns, wanted
        self.predicate: Predicate = UNKNOWN
        self._plan: Callable[[Predicate], list[ScanPartition]] | None = plan
        if prunes:
            self.pushFilters = _Pushed(self)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {"columns": self.columns, "wanted": self.wanted, "predicate": self.predicate, "_plan": None}

    def push(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        self.predicate = predicate_of(filters, self.columns)
        return filters

    @cut_here
    def partitions(self) -> Sequence[InputPartition]:
        assert self._plan is not None
        return self._plan(self.predicate)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is nothing to read, Spark makes a partition of its own.
        if isinstance(partition, ScanPartition):
            yield from batches(partition, self.columns, self.wanted)


class _Pushed:
    """`pushFilters` of a reader, which does not look like it.

    While filter pushdown is off in a session, as it is unless it was asked for, Spark refuses to read with a reader
    that has this method of its own. It tells by `__func__`. Reading everything then is right too, only slower.
    """

    def __init__(self, reader: TableReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: Sequence[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


def check_wanted(wanted: StructType, columns: pa.Schema) -> None:
    """A schema that the caller gave may leave columns out, and nothing else."""
    known = spark_schema(columns)
    for field in wanted.fields:
        if field.name not in columns.names:
            raise InvalidRequest(
                f"the table has no column {field.name!r}: it has {', '.join(columns.names)}", column=field.name
            )
        there = known[field.name].dataType
        if (gone := _gone(field.dataType, there, field.name)) is not None:
            raise InvalidRequest(
                f"the table has no field {gone!r}: column {field.name!r} is {there.simpleString()}", column=field.name
            )
        if _shape(field.dataType) != _shape(known[field.name].dataType):
            raise InvalidRequest(
                f"column {field.name!r} is {known[field.name].dataType.simpleString()} in the table, not "
                f"{field.dataType.simpleString()}: load it as it is and cast it in the DataFrame",
                column=field.name,
            )


def _gone(wanted: Any, there: Any, path: str) -> str | None:
    """The path of a field that is wanted and not there."""
    if isinstance(wanted, StructType) and isinstance(there, StructType):
        for field in wanted.fields:
            here = f"{path}.{field.name}"
            if field.name not in there.names:
                return here
            if (found := _gone(field.dataType, there[field.name].dataType, here)) is not None:
                return found
    return None


def _shape(kind: Any) -> str:
    """A type without what it says of nulls."""
    return str(kind.simpleString())


def batches(partition: ScanPartition, columns: pa.Schema, wanted: StructType) -> Iterator[pa.RecordBatch]:
    target = to_arrow_schema(wanted, timezone="UTC")
    names = list(wanted.names)
    bring((piece.path, piece.file_bytes) for piece in partition.pieces if not is_far(piece.path, piece.file_bytes))
    cutoff = partition.cutoff
    told_by = () if cutoff is None else (cutoff.column,)

    def shown(table: pa.Table) -> Iterator[pa.RecordBatch]:
        lasting = table if cutoff is None else cutoff.standing(table)
        yield from _as_spark_wants(lasting.select(names), target)

    for piece in partition.pieces:
        hidden = _hidden(partition.hidden) if piece.touched and partition.hidden is not None else None
        needed = dict.fromkeys((*names, *told_by, *(() if hidden is None else partition.by)))
        for table in _tables(piece, pa.schema([columns.field(name) for name in needed])):
            yield from shown(table if hidden is None else standing(table, hidden, partition.by))
    if partition.rows is not None:
        yield from shown(partition.rows.read())


def _tables(piece: Piece, columns: pa.Schema) -> Iterator[pa.Table]:
    """One row group at a time."""
    try:
        file = open_for(piece.path, piece.file_bytes, columns.names, partial(groups_of, piece))
    except Vanished as error:
        raise NotFound(
            f"{piece.path} is gone: vacuum, or the sweep of what reads have laid down, has removed it since this "
            "DataFrame was first read, or this machine does not see the lake. Load the table again"
        ) from error
    fixed = dict(piece.constants)
    known = set(file.schema_arrow.names)
    present = [name for name in columns.names if name in known and name not in fixed]
    for group in groups_of(piece, file.num_row_groups):
        try:
            table = file.read_row_group(group, columns=present)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise corrupt(piece.path, error) from error
        if not present:
            # Without a column, Arrow does not say how many rows there are.
            empty = pa.table({"": pa.nulls(file.metadata.row_group(group).num_rows)})
            yield completed(empty, columns, fixed)
        else:
            yield completed(table, columns, fixed)


@lru_cache(maxsize=2)
def _hidden(rows: Rows) -> pa.Table:
    """Spark keeps its Python workers: the next task of this read finds it here."""
    return rows.read()


def _as_spark_wants(table: pa.Table, target: pa.Schema) -> Iterator[pa.RecordBatch]:
    if not table.num_rows:
        return
    fitting = table if table.schema.equals(target) else table.cast(target)
    rows = max(1, min(BATCH_ROWS_MAX, BATCH_BYTES_MAX * table.num_rows // max(table.nbytes, 1)))
    yield from fitting.to_batches(max_chunksize=rows)
