"""A data file as it would be if some rows had never been in it: the others, in their order, by the table's own writer.

The new file gets its name when it is whole and lasts, so a name that is there is a file that is done; and a name that
is made of the old one, so whoever goes on after a crash finds it. What was left out is checked by subtraction: the
number of rows, and the fingerprint of their keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import PurePath, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.core.disk_files import is_small_write
from lithify.erasure.key_rows import Keys
from lithify.errors import Corruption
from lithify.files.examine import check_foreign
from lithify.files.key_checksum import added, fingerprint, fingerprint_of_file
from lithify.files.open_parquet import Footer, corrupt, footer_of, open_file, read_footer
from lithify.files.parquet import GROUP_ROWS_LARGE, Layout, PartWriter
from lithify.files.statistics import stats_json
from lithify.files.storage import Storage

_MARK = re.compile(r"-x[0-9a-f]{16}$")


@dataclass(frozen=True)
class FileWithout:
    """The new file. `path` is None where no row is left for one."""

    path: str | None
    size_bytes: int = 0
    footer: Footer | None = None
    schema: pa.Schema | None = None

    def stats(self, columns: Sequence[str]) -> str:
        assert self.footer is not None
        assert self.schema is not None
        return stats_json(self.footer, self.schema, columns)


def path_without(path: str, erasure: str) -> str:
    """What the file that takes the place of this one is called, in the same folder."""
    made = blake2b(f"{erasure} {path}".encode(), digest_size=16).hexdigest()
    if is_small_write(path):
        return f"write-{made}.parquet"
    whole = PurePosixPath(path)
    return str(whole.with_name(f"{_MARK.sub('', whole.stem)}-x{made[:16]}{whole.suffix}"))


def written_before(store: Storage, root: PurePath, path: str) -> FileWithout | None:
    """What is there of it, from before a crash."""
    if not store.exists(root / path):
        return None
    footer = footer_of(read_footer(root / path), root / path)
    return FileWithout(path, store.size(root / path), footer, open_file(root / path).schema_arrow)


def holds_any(keys: Keys, path: PurePath) -> bool:
    batches = _batches(open_file(path), path, list(keys.columns))
    return any(pc.any(_hits(keys, batch)).as_py() for batch in batches)


def write_without(store: Storage, root: PurePath, path: str, target: str, keys: Keys, layout: Layout) -> FileWithout:
    """`target`: a path below the same root; one that is there was written by this very call, before a crash."""
    source = root / path
    check_foreign([(str(source), None)])
    if not store.exists(root / target) and not _write(store, root, source, target, keys, layout):
        return FileWithout(None)
    found = written_before(store, root, target)
    assert found is not None
    return found


def _write(store: Storage, root: PurePath, source: PurePath, target: str, keys: Keys, layout: Layout) -> bool:
    """False: nothing would be in it."""
    file = open_file(source)
    schema = file.schema_arrow.remove_metadata()
    unfinished = (root / target).with_name(f".{PurePath(target).name}.tmp")
    store.delete(unfinished)
    writer = PartWriter(unfinished, schema, _layout_of(file, layout))
    before, gone, rows, left_out = list[int](), list[int](), 0, 0
    try:
        for batch in _batches(file, source):
            hits = _hits(keys, batch)
            some = batch.filter(hits)
            before.append(fingerprint(batch, keys.columns))
            gone.append(fingerprint(some, keys.columns))
            rows += batch.num_rows
            left_out += some.num_rows
            writer.write(batch.filter(pc.invert(hits)))
        if left_out == rows:
            writer.abandon()
            return False
        written = writer.close(root)
    except BaseException:
        writer.abandon()
        raise
    expected = added([*before, -added(gone)])
    kept = pa.schema([schema.field(name) for name in keys.columns])
    is_right = fingerprint_of_file(unfinished, kept) == expected
    if written.rows != rows - left_out or rows != file.metadata.num_rows or not is_right:
        store.delete(unfinished)
        raise Corruption(
            f"writing {source} without {left_out} rows gave others than were in it: nothing was changed; check the "
            "disk, then resume",
            path=str(source),
        )
    store.touch_ms(unfinished, int(store.modified_ms(source)))
    store.move(unfinished, root / target)
    return True


def _batches(file: pq.ParquetFile, path: PurePath, columns: list[str] | None = None) -> Iterator[pa.Table]:
    try:
        for batch in file.iter_batches(GROUP_ROWS_LARGE, columns=columns):
            yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt(path, error) from error


def _hits(keys: Keys, batch: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(keys.mask(batch), False)


def _layout_of(file: pq.ParquetFile, layout: Layout) -> Layout:
    """As the old file was written, where it says so."""
    metadata = file.metadata
    if not metadata.num_row_groups:
        return layout
    group = metadata.row_group(0)
    columns = [group.column(number) for number in range(metadata.num_columns)]
    delta = [column.path_in_schema for column in columns if "DELTA_BINARY_PACKED" in column.encodings]
    sorts = [sort for sort in group.sorting_columns or () if not sort.descending and not sort.nulls_first]
    names = tuple(columns[sort.column_index].path_in_schema for sort in sorts)
    return replace(layout, compact_columns=tuple(delta), sorted_by=names)
