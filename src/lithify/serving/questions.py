"""What the engine itself asks of DataFusion: about a condition, and about keys in base files."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from datafusion import DataFrame

from lithify.model.names import quoted
from lithify.model.plans import Source
from lithify.serving.contexts import Contexts
from lithify.serving.execution import Course, collect
from lithify.serving.failures import translated_errors
from lithify.serving.guard import check_condition
from lithify.serving.look import READ_ONLY
from lithify.serving.relation import in_memory, scan


class Questions:
    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts

    def columns_of(self, schema: pa.Schema, where: str) -> list[str]:
        """The columns a condition reads: those without which it cannot be planned."""
        check_condition(where)
        with self._contexts.session() as session, translated_errors():
            ctx = session.ctx
            ctx.register_record_batches("t", [[pa.RecordBatch.from_pylist([], schema=schema)]])
            ctx.sql_with_options(f"SELECT 1 FROM datafusion.public.t WHERE ({where}\n)", READ_ONLY)
            used: list[str] = []
            for name in schema.names:
                rest = pa.schema([f for f in schema if f.name != name] or [pa.field("lithify_none", pa.int8())])
                alias = f"without_{len(used)}_{schema.get_field_index(name)}"
                ctx.register_record_batches(alias, [[pa.RecordBatch.from_pylist([], schema=rest)]])
                try:
                    ctx.sql_with_options(f"SELECT 1 FROM datafusion.public.{alias} t WHERE ({where}\n)", READ_ONLY)
                except Exception:
                    used.append(name)
            return used

    def losers(self, base: Sequence[Source], contested: pa.Table, key: Sequence[str], order_by: str) -> pa.Table:
        """Keys of `contested` whose base row has a higher order_by (nulls lowest)."""
        columns = contested.schema
        if not base or not contested.num_rows:
            return contested.select(list(key)).slice(0, 0)
        with self._contexts.session() as session, translated_errors(sources=base):
            ctx, links = session.ctx, session.links
            ctx.register_view("b", scan(ctx, base, columns, links))
            ctx.register_view("c", in_memory(ctx, contested))
            keys = ", ".join(f"c.{quoted(name)}" for name in key)
            same = " AND ".join(f"b.{quoted(name)} = c.{quoted(name)}" for name in key)
            order = quoted(order_by)
            frame = ctx.sql(
                f"SELECT {keys} FROM datafusion.public.c c JOIN datafusion.public.b b ON {same} "
                f"WHERE b.{order} IS NOT NULL AND (c.{order} IS NULL OR b.{order} > c.{order})"
            )
            target = contested.select(list(key)).schema
            return _result(frame).cast(pa.schema([f.with_nullable(True) for f in target])).cast(target)

    def duplicate_keys(self, base: Sequence[Source], columns: pa.Schema, limit: int = 5) -> pa.Table:
        """Keys that stand more than once, or are null, in files that were not written by us."""
        with self._contexts.session() as session, translated_errors(sources=base):
            ctx, links = session.ctx, session.links
            ctx.register_view("b", scan(ctx, base, columns, links))
            keys = ", ".join(quoted(name) for name in columns.names)
            null = " OR ".join(f"{quoted(name)} IS NULL" for name in columns.names)
            return _result(
                ctx.sql(
                    f"SELECT {keys}, count(*) AS rows FROM datafusion.public.b GROUP BY {keys} HAVING count(*) > "
                    f"1 OR {null} LIMIT {limit}"
                )
            )


def _result(frame: DataFrame) -> pa.Table:
    return collect(frame, Course())
