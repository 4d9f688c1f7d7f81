"""What the engine itself asks of DataFusion: about a condition, and about keys in base files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from datafusion import DataFrame, SessionContext

from lithify.core.arrow_rows import lookup
from lithify.core.names import RESERVED_PREFIX, quoted
from lithify.core.read_plan import ReadPlan, Source
from lithify.core.schema import nullable
from lithify.merge.apply import same_sql, standing
from lithify.merge.newer import older_sql
from lithify.sql.analysis import READ_ONLY
from lithify.sql.cheap_to_plan import check_cheap_condition
from lithify.sql.contexts import Contexts
from lithify.sql.errors import translated_errors
from lithify.sql.guard import check_condition
from lithify.sql.key_rows import KeyRows
from lithify.sql.literals import Constants
from lithify.sql.query_run import QueryRun, collect
from lithify.sql.scan_files import in_memory, relation, scan

# Inside of EXISTS, `b.x` would be the field x of a column b: these are no names of columns.
_ROWS, _KEYS = f"{RESERVED_PREFIX}_rows", f"{RESERVED_PREFIX}_keys"


class KeyQueries:
    def __init__(self, contexts: Contexts, found: KeyRows) -> None:
        self._contexts, self._found = contexts, found

    def forget(self) -> None:
        """Of what is kept for the next time."""
        self._found.forget()

    def columns_of(self, schema: pa.Schema, where: str, *, tame: bool = True) -> list[str]:
        """The columns a condition reads: those without which it cannot be planned."""
        (check_cheap_condition if tame else check_condition)(where)
        where = Constants(where).spelled()
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

    def losers(self, base: Sequence[Source], contested: pa.Table, key: Sequence[str], order: Sequence[str]) -> pa.Table:
        """Keys of `contested` whose base row is newer, by the columns `order`."""
        columns = contested.schema
        if not base or not contested.num_rows:
            return contested.select(list(key)).slice(0, 0)
        with self._contexts.session(sources=base) as session, translated_errors(sources=base):
            ctx, links = session.ctx, session.links
            ctx.register_view("b", scan(ctx, base, columns, links, careful=session.careful))
            ctx.register_view("c", in_memory(ctx, contested))
            keys = ", ".join(f"c.{quoted(name)}" for name in key)
            same = same_sql("b", "c", dict.fromkeys(key, False))
            late = older_sql([f"c.{quoted(name)}" for name in order], [f"b.{quoted(name)}" for name in order])
            frame = ctx.sql(
                f"SELECT {keys} FROM datafusion.public.c c JOIN datafusion.public.b b ON {same} WHERE {late}"
            )
            target = contested.select(list(key)).schema
            return _result(frame).cast(nullable(target)).cast(target)

    def rows(self, base: Sequence[Source], keys: pa.Table, columns: pa.Schema) -> pa.Table:
        """The base rows with these keys."""
        if not base or not keys.num_rows:
            return columns.empty_table()
        inside = nullable(columns)
        if (met := self._found.rows(base, keys, inside)) is not None:
            return met.cast(columns)
        with self._contexts.session(sources=base) as session, translated_errors(sources=base):
            session.ctx.sql("SET datafusion.execution.parquet.pushdown_filters = true").collect()
            session.ctx.register_view("b", scan(session.ctx, base, inside, session.links, careful=session.careful))
            found = list(_equal(session.ctx, columns.names, [keys]))
        return pa.concat_tables([inside.empty_table(), *(part.cast(inside) for part in found)]).cast(columns)

    def matching(
        self, plan: ReadPlan, keys: Sequence[pa.Table], columns: Sequence[str], there: pa.Table | None = None
    ) -> pa.Table:
        """Rows of a plan that are equal to a line of one of `keys` in all its columns; nulls compare equal. A table of
        keys with no columns is equal to every row. `there`: more rows, which are known to stand in base and are
        not looked for there.
        """
        overlay = plan.overlay
        names = list(dict.fromkeys([*columns, *(name for wanted in keys for name in wanted.column_names), *plan.by]))
        inside = nullable(plan.schema.select(names))
        sources = (*plan.clean, *plan.touched, *plan.changes)
        parts = [inside.empty_table()]
        alone = keys[0] if len(keys) == 1 and overlay is not None else None
        met = None if alone is None else self._found.rows(sources, alone, inside)
        if met is not None:
            parts.append(met)
        elif sources:
            with self._contexts.session(sources=sources) as session, translated_errors(sources=sources):
                # The keys go down to the scan, which decodes them first and then no pages but those with a match.
                session.ctx.sql("SET datafusion.execution.parquet.pushdown_filters = true").collect()
                if overlay is None:
                    rows = relation(session.ctx, plan, session.links, careful=session.careful)
                else:
                    rows = scan(session.ctx, sources, inside, session.links, careful=session.careful)
                session.ctx.register_view("b", rows)
                parts += [found.cast(inside) for found in _equal(session.ctx, names, keys)]
        if overlay is None:
            return pa.concat_tables(parts).select(list(columns))
        if there is not None:
            parts.append(there.select(names).cast(inside))
            keys = [*keys, there]
        parts = [standing(pa.concat_tables(parts), overlay.hidden, plan.by)]
        shown = overlay.rows.select(names).cast(inside)
        met = np.zeros(shown.num_rows, np.bool_)
        for wanted in keys:
            by = wanted.column_names
            met |= lookup(shown, wanted, by) >= 0 if by else bool(wanted.num_rows)
        return pa.concat_tables([*parts, shown.filter(pa.array(met))]).select(list(columns))

    def over(self, tables: Mapping[str, pa.Table], query: str) -> pa.Table:
        """Our own query over rows in memory, which it names by `tables`."""
        with self._contexts.session() as session, translated_errors():
            for name, rows in tables.items():
                session.ctx.register_view(name, in_memory(session.ctx, rows))
            return _result(session.ctx.sql(query))

    def duplicate_keys(self, base: Sequence[Source], columns: pa.Schema, limit: int = 5) -> pa.Table:
        """Keys that stand more than once, or are null, in files that were not written by us."""
        with self._contexts.session(sources=base) as session, translated_errors(sources=base):
            ctx, links = session.ctx, session.links
            ctx.register_view("b", scan(ctx, base, columns, links, careful=session.careful))
            keys = ", ".join(quoted(name) for name in columns.names)
            null = " OR ".join(f"{quoted(name)} IS NULL" for name in columns.names)
            return _result(
                ctx.sql(
                    f"SELECT {keys}, count(*) AS rows FROM datafusion.public.b GROUP BY {keys} HAVING count(*) > "
                    f"1 OR {null} LIMIT {limit}"
                )
            )


def _equal(ctx: SessionContext, names: Sequence[str], keys: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """Rows of `b` that equal a line of the first table of keys, then those of the second and not of the first, …"""
    tests: list[str] = []
    for number, wanted in enumerate(keys):
        if wanted.num_columns:
            ctx.register_view(f"k{number}", in_memory(ctx, wanted))
            same = same_sql(_KEYS, _ROWS, {f.name: f.nullable for f in wanted.schema})
            test = f"EXISTS (SELECT 1 FROM datafusion.public.k{number} {_KEYS} WHERE {same})"
        else:
            test = "TRUE" if wanted.num_rows else "FALSE"
        found = " AND ".join([test, *(f"NOT {earlier}" for earlier in tests)])
        shown = ", ".join(f"{_ROWS}.{quoted(name)}" for name in names)
        yield _result(ctx.sql(f"SELECT {shown} FROM datafusion.public.b {_ROWS} WHERE {found}"))
        tests.append(test)


def _result(frame: DataFrame) -> pa.Table:
    return collect(frame, QueryRun())
