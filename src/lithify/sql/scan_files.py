"""A read plan as a DataFusion relation.

DataFusion scans folders natively and fast, but not lists of files. So the files of a plan are linked into a private
folder of this process, and that folder is scanned. It passes over a link whose file is gone and over an empty file, so
whoever has the rows asks `LinkFolder.check` whether all files are still there. Of what lies in a bucket there are local
copies, which stay for as long as the links. The links go when the plan is forgotten; the files are never touched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import PurePath

import numpy as np
import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext, col, lit
from datafusion.catalog import Table

from lithify.core.expiry import Cutoff
from lithify.core.names import GIVEN, OP, RESERVED_PREFIX, SEQ, quoted
from lithify.core.ops import Op
from lithify.core.partial_rows import PATCH_FIELDS
from lithify.core.read_plan import ReadPlan, Source, by_constants
from lithify.errors import LithifyError
from lithify.files.local_files import LocalNames, bring
from lithify.files.open_parquet import INT96_UNIT
from lithify.files.read_proof import Marks
from lithify.files.scratch import discard, links_to
from lithify.files.statistics import doubtful
from lithify.merge.apply import distributed_sql, hiding_sql
from lithify.merge.late import tombstone_columns

_SHOWN, _HIDDEN = f"{RESERVED_PREFIX}_shown", f"{RESERVED_PREFIX}_hidden"
_numbers = itertools.count(1)


def scanning_config() -> SessionConfig:
    """What every context that reads Parquet files begins with: times in INT96 are microseconds, as in the tables."""
    return SessionConfig().set("datafusion.execution.parquet.coerce_int96", INT96_UNIT)


def must_doubt(sources: Iterable[Source]) -> bool:
    """Whether the engine must not see statistics of these files: it believes them all, in whatever order they are."""
    foreign = [source for source in sources if source.foreign]
    bring((source.path, source.size_bytes) for source in foreign)
    return any(map(_doubtful, foreign))


def _doubtful(source: Source) -> bool:
    try:
        return doubtful(source.path, source.size_bytes)
    except LithifyError:  # whoever reads the file says what is wrong with it
        return False


class LinkFolder:
    """Folders of links for the scans of one plan."""

    def __init__(self, root: PurePath) -> None:
        self.path = root / f"plan-{next(_numbers)}"
        self._made = False
        self._marks, self._names = Marks(), LocalNames()

    def of(self, sources: Sequence[Source]) -> str:
        folder = self.path / str(next(_numbers))
        self._made = True
        names = self._names.of([(source.path, source.size_bytes) for source in sources])
        for name, source in zip(names, sources, strict=True):
            self._marks.add(name, source.size_bytes)
        links_to(names, folder)
        return f"{folder}/"

    def check(self) -> None:
        """Raises if one of the files may not have been scanned whole."""
        self._marks.check()

    def remove(self) -> None:
        if self._made:
            discard(self.path)
        self._names.close()


def relation(ctx: SessionContext, plan: ReadPlan, links: LinkFolder, *, careful: bool = False) -> DataFrame:
    """The fresh rows of a table, with the columns that the plan tells, in the table's order. `careful`: statistics of
    files rule nothing out.
    """
    whole, cutoff = _merged(ctx, plan, links, careful=careful), plan.snapshot.cutoff
    return whole if cutoff is None else shown(whole, cutoff)


def shown(frame: DataFrame, cutoff: Cutoff) -> DataFrame:
    """Rows that have not expired."""
    time = col(quoted(cutoff.column))
    return frame.filter((time > lit(cutoff.scalar)) | time.is_null())


def _merged(ctx: SessionContext, plan: ReadPlan, links: LinkFolder, *, careful: bool) -> DataFrame:
    bring((source.path, source.size_bytes) for source in (*plan.clean, *plan.touched, *plan.changes))
    if plan.overlay is None:
        return _distributed(ctx, plan, links, careful=careful)
    parts, columns = [], plan.schema.select(plan.columns)
    if plan.clean:
        parts.append(scan(ctx, plan.clean, columns, links, careful=careful))
    if plan.touched:
        base = scan(ctx, plan.touched, columns, links, careful=careful)
        parts.append(without(ctx, base, plan.overlay.hidden, plan.by) if plan.overlay.hidden.num_rows else base)
    if plan.overlay.rows.num_rows or not parts:
        parts.append(in_memory(ctx, plan.overlay.rows))
    return _union(parts, columns.names)


def scan(
    ctx: SessionContext, sources: Iterable[Source], columns: pa.Schema, links: LinkFolder, *, careful: bool = False
) -> DataFrame:
    parts = []
    for constants, group in by_constants(sources).items():
        fixed = dict(constants)
        inside = pa.schema([f.with_nullable(True) for f in columns if f.name not in fixed])
        frame = ctx.read_parquet(links.of(group), schema=inside, parquet_pruning=not careful)
        exprs = [
            lit(pa.scalar(fixed[f.name], f.type)).cast(f.type).alias(f.name) if f.name in fixed else col(quoted(f.name))
            for f in columns
        ]
        parts.append(frame.select(*exprs) if fixed else frame)
    return _union(parts, list(columns.names))


def without(ctx: SessionContext, frame: DataFrame, hidden: pa.Table, by: Sequence[str]) -> DataFrame:
    """Nulls match only where a hidden key has one, which a table with no key may ask for."""
    left, right = _register(ctx, frame), _register(ctx, in_memory(ctx, hidden.select(list(by))))
    with_nulls = {name: hidden.column(name).null_count > 0 for name in by}
    return ctx.sql(hiding_sql(left, _SHOWN, right, _HIDDEN, with_nulls))


def _distributed(ctx: SessionContext, plan: ReadPlan, links: LinkFolder, *, careful: bool) -> DataFrame:
    columns = plan.schema.columns
    base = _register(
        ctx,
        scan(ctx, [*plan.clean, *plan.touched], columns, links, careful=careful)
        if plan.clean or plan.touched
        else in_memory(ctx, columns.empty_table()),
    )
    groups: dict[tuple[int, str], list[Source]] = {}
    for source in plan.changes:
        groups.setdefault((source.seq, source.op.value), []).append(source)
    partial = any(op == Op.UPDATE for _, op in groups)
    beside = PATCH_FIELDS if partial else ()
    parts = []
    for (seq, op), group in groups.items():
        given = op == Op.UPDATE
        inside = pa.schema([*columns, *PATCH_FIELDS]) if given else columns
        part = scan(ctx, group, inside, links, careful=careful).with_column(SEQ, lit(seq)).with_column(OP, lit(op))
        for column in beside if not given else ():
            part = part.with_column(column.name, lit(pa.scalar(None if column.name == GIVEN else 0, column.type)))
        parts.append(part)
    changes = _register(ctx, _union(parts, [*plan.schema.names, SEQ, OP, *(column.name for column in beside)]))
    remembered = None
    if plan.remembered is not None and plan.remembered.num_rows:
        tombstones = plan.remembered.rename_columns(tombstone_columns(plan.schema))
        remembered = _register(ctx, in_memory(ctx, tombstones))
    row_key = plan.snapshot.row_key
    return ctx.sql(distributed_sql(plan.schema, base, changes, row_key, partial=partial, remembered=remembered))


def _register(ctx: SessionContext, frame: DataFrame) -> str:
    name = f"lithify_part_{next(_numbers)}"
    ctx.register_view(name, frame)
    return f"datafusion.public.{name}"


def in_memory(ctx: SessionContext, table: pa.Table) -> DataFrame:
    return ctx.table(f"datafusion.public.{_register_rows(ctx, table)}")


def memory_table(ctx: SessionContext, table: pa.Table) -> Table:
    """Rows that other contexts can be given under any name. This one keeps nothing of them."""
    return table_of_batches(ctx, table.to_batches(max_chunksize=65_536), table.schema)


def table_of_batches(
    ctx: SessionContext, batches: Sequence[pa.RecordBatch], schema: pa.Schema, parts: int = 1
) -> Table:
    """In `parts` that can be read at the same time, each of neighbours."""
    name = _register_batches(ctx, batches, schema, parts)
    try:
        return ctx.catalog("datafusion").schema("public").table(name)
    finally:
        ctx.deregister_table(name)


def frame_of(ctx: SessionContext, table: Table) -> DataFrame:
    """A table as a relation. The context keeps nothing of it."""
    name = f"lithify_rows_{next(_numbers)}"
    ctx.register_table(name, table)
    try:
        return ctx.table(f"datafusion.public.{name}")
    finally:
        ctx.deregister_table(name)


def _register_rows(ctx: SessionContext, table: pa.Table) -> str:
    return _register_batches(ctx, table.to_batches(max_chunksize=65_536), table.schema)


def _register_batches(ctx: SessionContext, batches: Sequence[pa.RecordBatch], schema: pa.Schema, parts: int = 1) -> str:
    name = f"lithify_rows_{next(_numbers)}"
    whole = [_unsliced(batch) for batch in batches] or [pa.RecordBatch.from_pylist([], schema=schema)]
    parts = min(parts, len(whole))
    ends = [len(whole) * number // parts for number in range(parts + 1)]
    ctx.register_record_batches(name, [whole[start:end] for start, end in itertools.pairwise(ends)])
    return name


def _unsliced(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A slice of a struct within a struct ends DataFusion 55 with a failed assertion: such a batch is copied."""
    if any(array.offset and _has_inner_struct(array.type) for array in batch.columns):
        return batch.take(pa.array(np.arange(batch.num_rows)))
    return batch


def _has_inner_struct(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and any(pa.types.is_struct(inner.type) for inner in kind)


def _union(parts: Sequence[DataFrame], names: Sequence[str]) -> DataFrame:
    selected = [part.select(*[col(quoted(name)) for name in names]) for part in parts]
    whole = selected[0]
    for part in selected[1:]:
        whole = whole.union(part)
    return whole
