"""What pending changes come to, followed from commit to commit and filled in column by column.

`resolve` makes an overlay of all changes. `extended` puts newer changes on top of an overlay: of the keys that they
name, what the overlay says of them stands in front as a delete, a replace or an update, and everything else is left as
it is. Only changes of higher seqs may come on top, because some of them count once (`rules`).

On a table with neither order_by nor merge rules, a line that gives some columns alone (`partial`) says all there is to
know of those columns, whatever row stands in base. So who reads no others needs nothing of base: `shown` is an overlay
of the columns that every line gives, and `filled` has the lines of the others give a column too, with the value that
stands in base. Elsewhere base decides what a line comes to: lines are completed as a whole (`resolve.with_patches`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lithify.core.arrow_rows import anti_join, lookup
from lithify.core.names import GIVEN, given_text, names_given
from lithify.core.ops import Change, Op, Overlay
from lithify.core.schema import TableSchema
from lithify.merge.winners import resolve

# A change adds a piece to each column; more than this are put together.
PIECES_MAX = 32


def can_stay_open(schema: TableSchema) -> bool:
    """Whether lines that give some columns say all of these columns, whatever stands in base."""
    return not schema.order_by and not schema.rules


def extended(schema: TableSchema, before: Overlay, changes: Sequence[Change]) -> Overlay:
    """An overlay, and changes of higher seqs on top of it. What base still has to decide is that of their keys alone,
    unless lines were left open before.
    """
    assert before.contested is None, "base has decided what came before"
    new = [change for change in changes if change.rows.num_rows]
    if not new:
        return before
    key = list(schema.key)
    columns = schema.select(key)
    named = pa.concat_tables([change.rows.select(key).cast(columns) for change in new])
    named = named.group_by(key).aggregate([]).select(key)
    met, hidden = _split(before.hidden, named, key)
    met_rows, rows = _split(before.rows, named, key)
    first = [Change(0, Op.REPLACE, met_rows)]
    gone, patches = anti_join(met, met_rows, key), None
    if before.patches is not None:
        met_patches, patches = _split(before.patches, named, key)
        gone = anti_join(gone, met_patches, key)
        first.append(Change(0, Op.UPDATE, met_patches))
    first.append(Change(0, Op.DELETE, gone.cast(columns)))
    newer = resolve(schema, [*(change for change in first if change.rows.num_rows), *new])
    return Overlay(
        _below(hidden, newer.hidden),
        _below(rows, newer.rows),
        newer.contested,
        patches if newer.patches is None else newer.patches if patches is None else _below(patches, newer.patches),
    )


def _split(table: pa.Table, keys: pa.Table, by: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The rows with one of the keys, and the others."""
    met = lookup(table, keys, by) >= 0
    return table.filter(pa.array(met)), table.filter(pa.array(~met)) if met.any() else table


def _below(first: pa.Table, second: pa.Table) -> pa.Table:
    together = pa.concat_tables([first, second.cast(first.schema)])
    many = any(column.num_chunks > PIECES_MAX for column in together.columns)
    return together.combine_chunks() if many else together


# -- columns of open lines


def lacking(schema: TableSchema, patches: pa.Table, among: Collection[str] | None = None) -> list[str]:
    """The columns, of all or of some, that not every line gives."""
    said = [set(names_given(text)) for text in patches.column(GIVEN).unique().to_pylist()]
    names = [name for name in schema.names if name not in schema.key and (among is None or name in among)]
    return [name for name in names if any(name not in given for given in said)]


def keys_lacking(schema: TableSchema, patches: pa.Table, names: Collection[str]) -> pa.Table:
    """Of the lines that lack one of these columns."""
    given = _Given(patches)
    lines = given.where([not set(names) <= said for said in given.sets])
    return patches.select(list(schema.key)).filter(pa.array(lines)).cast(schema.select(schema.key))


def filled(schema: TableSchema, patches: pa.Table, names: Collection[str], base: pa.Table) -> pa.Table:
    """The lines, which now give these columns too. `base`: the key and these columns of the rows that the keys of lines
    which lack one have, where they have a row.
    """
    given = _Given(patches)
    found = lookup(patches, base, schema.key)
    arrays = []
    for column in patches.schema:
        values = patches.column(column.name)
        if column.name in names:
            own = given.where([column.name in said for said in given.sets])
            both = pa.chunked_array([*values.chunks, *base.column(column.name).cast(column.type).chunks], column.type)
            lines = np.where(own, np.arange(len(own)), patches.num_rows + found)
            values = both.take(pa.array(lines, mask=~own & (found < 0)))
        elif column.name == GIVEN:
            more = [given_text(n for n in schema.names if n in names or n in said) for said in given.sets]
            values = pa.array(more, pa.string()).take(given.codes)
        arrays.append(values)
    return pa.table(arrays, patches.schema)


def shown(schema: TableSchema, overlay: Overlay) -> Overlay:
    """As a reader takes it: the columns that are known of every row."""
    if overlay.patches is None:
        return overlay
    unknown = lacking(schema, overlay.patches)
    columns = schema.select([name for name in schema.names if name not in unknown])
    rows = pa.concat_tables([part.select(columns.names).cast(columns) for part in (overlay.rows, overlay.patches)])
    return Overlay(overlay.hidden, rows)


def closed(schema: TableSchema, overlay: Overlay) -> Overlay:
    """Without open lines where all of them give every column."""
    if overlay.patches is None or lacking(schema, overlay.patches):
        return overlay
    return replace(shown(schema, overlay), contested=overlay.contested)


class _Given:
    """Which columns each line gives, as the number of one of a few sets."""

    def __init__(self, patches: pa.Table) -> None:
        texts = patches.column(GIVEN).combine_chunks().dictionary_encode()
        self.codes: pa.Array = texts.indices
        self.sets = [set(names_given(text)) for text in texts.dictionary.to_pylist()]

    def where(self, chosen: Sequence[bool]) -> np.ndarray:
        """The lines whose set is chosen."""
        lines: np.ndarray = np.array(chosen, np.bool_)[self.codes.to_numpy()]
        return lines
