"""A footer of some row groups says of them what the whole one says, whatever the columns; else there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify.core.read_plan import FooterPart, GroupEntry, Source
from lithify.files import footer_parts
from lithify.files.footer_cache import Footers
from lithify.files.footer_parts import group_extents, read_part
from lithify.files.open_parquet import footer_of, open_file, read_footer, read_tagged_footer
from lithify.files.read_proof import Vanished
from support.golden_sidecars import types_table
from support.parquet_footers import I64, ROW_GROUPS, Fields, edited

TOTAL_BYTES = 2


@pytest.fixture(autouse=True)
def every_footer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones too."""
    monkeypatch.setattr(footer_parts, "FOOTER_BYTES_MIN", 0)


def written(folder: Path, table: pa.Table | None = None, groups: int = 5, **options: Any) -> Path:
    """Row groups of two rows."""
    path = folder / "f.parquet"
    given = types_table() if table is None else table
    whole = pa.concat_tables([given] * groups).slice(0, 2 * groups)
    pq.write_table(whole, path, row_group_size=2, **options)
    return path


def part_of(path: Path, *groups: int) -> FooterPart:
    raw, tag = read_tagged_footer(path)
    footer = footer_of(raw, path)
    extents = group_extents(raw, footer.metadata)
    assert extents
    chosen = tuple(GroupEntry(*extents[group], footer.metadata.row_group(group).num_rows) for group in groups)
    return FooterPart(len(raw), tag, len(extents), extents[0][0], sum(extents[-1]), chosen)


def source(path: Path, *groups: int) -> Source:
    return Source(str(path), 10, path.stat().st_size, groups=groups, part=part_of(path, *groups))


def shown(file: pq.ParquetFile, groups: Iterable[int]) -> list[tuple[pa.Schema, str]]:
    """Types and rows, in which NaN equals NaN."""
    tables = [file.read_row_group(group) for group in groups]
    return [(table.schema, repr(table.to_pylist())) for table in tables]


def expected(path: Path, *groups: int) -> list[tuple[pa.Schema, str]]:
    return shown(open_file(path), groups)


def read(path: Path, *groups: int) -> list[tuple[pa.Schema, str]]:
    """By a part of the footer."""
    metadata = read_part(str(path), path.stat().st_size, part_of(path, *groups))
    assert metadata is not None
    assert metadata.num_row_groups == len(groups)
    return shown(open_file(path, metadata=metadata), range(len(groups)))


LEGACY = pa.table(
    {
        "at": pa.array([0, 253_402_214_400_000_000], pa.timestamp("us")),
        "deep": [[{"a": [1, None], "b": {"c": "x"}}], None],
        "d": pa.array([None, 5], pa.decimal128(38, 2)),
        "m": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
    }
)
WAYS: dict[str, tuple[pa.Table | None, dict[str, Any]]] = {
    "every type": (None, {}),
    "without the schema of Arrow": (None, {"store_schema": False}),
    "one column": (pa.table({"a": [1, 2]}), {}),
    "nested, INT96": (LEGACY, {"use_deprecated_int96_timestamps": True}),
    "sorted, with bloom filters and a page index": (
        pa.table({"a": [1, 2], "b": ["x", "y"]}),
        {
            "sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(1, True, True)],
            "bloom_filter_options": {"b": {"ndv": 8}},
            "write_page_index": True,
        },
    ),
    "plain decimals as integers": (LEGACY, {"store_decimal_as_integer": True, "compression": "gzip"}),
    "first version": (pa.table({"a": [1, 2]}), {"version": "1.0", "write_statistics": False}),
}


@pytest.mark.parametrize("groups", [(0,), (4,), (2,), (1, 2), (0, 4)])
@pytest.mark.parametrize("way", WAYS)
def test_rows_are_those_that_the_whole_footer_leads_to(tmp_path: Path, way: str, groups: tuple[int, ...]) -> None:
    table, options = WAYS[way]
    path = written(tmp_path, table, **options)

    assert read(path, *groups) == expected(path, *groups)


@pytest.mark.parametrize("count", [2, 14, 15, 16, 130])
def test_lists_of_any_length_are_cut(tmp_path: Path, count: int) -> None:
    """Whose head is one byte, two or three."""
    path = written(tmp_path, pa.table({"a": [1, 2], "b": [3, 4]}), groups=count)

    assert [len(part_of(path, count - 1).groups), part_of(path, 0).groups_all] == [1, count]
    assert len(read(path, *range(count))) == count


def test_a_small_footer_and_a_single_row_group_are_not_worth_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path)
    raw = read_footer(path)
    one = written(tmp_path, groups=1)
    assert group_extents(read_footer(one), pq.read_metadata(one)) == []

    monkeypatch.setattr(footer_parts, "FOOTER_BYTES_MIN", len(raw) + 1)
    assert group_extents(raw, footer_of(raw, path).metadata) == []


def test_a_footer_that_is_written_in_another_way_has_no_places(tmp_path: Path) -> None:
    path = written(tmp_path, pa.table({"a": [1, 2]}))

    def strange(footer: Fields) -> None:
        """A field that no version knows, before the numbers that are looked for."""
        for group in footer[ROW_GROUPS][1][1]:
            group[20] = group.pop(TOTAL_BYTES)
            group[TOTAL_BYTES] = I64, 7

    edited(path, strange)
    raw = read_footer(path)
    metadata = footer_of(raw, path).metadata
    found = group_extents(raw, metadata)
    assert not found or read(path, 3) == expected(path, 3)
    # Bytes that begin like a footer and lead nowhere.
    for length in range(0, len(raw), 7):
        assert group_extents(raw[:length], metadata) == []


CHANGES: dict[str, Callable[[Path], object]] = {
    "replaced by another of its size": lambda path: os.utime(path, ns=(1, 1)),
    "cut": lambda path: os.truncate(path, path.stat().st_size - 1),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_file_that_is_not_the_one_that_was_seen_has_no_part(tmp_path: Path, how: str) -> None:
    path = written(tmp_path)
    size, part = path.stat().st_size, part_of(path, 2)
    assert read_part(str(path), size, part) is not None

    CHANGES[how](path)

    assert read_part(str(path), size, part) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda part: part._replace(groups=(part.groups[0]._replace(rows=3),)),
        lambda part: part._replace(groups=(part.groups[0]._replace(begin=part.groups[0].begin + 1),)),
        lambda part: part._replace(groups=(part.groups[0]._replace(length=part.groups[0].length - 1),)),
        lambda part: part._replace(groups_all=part.groups_all + 1),
        lambda part: part._replace(first=part.first + 1),
        lambda part: part._replace(end=part.end + 1),
        lambda part: part._replace(footer_bytes=part.footer_bytes - 1),
    ],
)
def test_places_that_are_wrong_lead_to_no_part_and_then_to_the_same_rows(
    tmp_path: Path, wrong: Callable[[FooterPart], FooterPart]
) -> None:
    path = written(tmp_path)
    size = path.stat().st_size
    part = wrong(part_of(path, 2))

    assert read_part(str(path), size, part) is None
    opened = Footers().open(Source(str(path), 10, size, groups=(2,), part=part))
    assert shown(opened.file, opened.groups) == expected(path, 2)


# -- kept for the next time


def test_a_part_is_read_once_and_only_that_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    footers, wanted = Footers(), source(path, 1, 3)

    for _ in range(2):
        opened = footers.open(wanted)
        assert opened.file.metadata.num_row_groups == 2
        assert shown(opened.file, opened.groups) == expected(path, 1, 3)
        assert opened.names == frozenset(types_table().column_names)
        monkeypatch.setattr("lithify.files.footer_cache.read_part", None)


def test_a_whole_footer_that_is_there_serves_for_parts_too(tmp_path: Path) -> None:
    path = written(tmp_path)
    footers = Footers()
    footers.open(Source(str(path), 10, path.stat().st_size))

    opened = footers.open(source(path, 3))

    assert (opened.file.metadata.num_row_groups, list(opened.groups)) == (5, [3])


def test_a_file_put_in_the_place_of_another_is_read_as_it_is(tmp_path: Path) -> None:
    path, other = written(tmp_path, pa.table({"a": [1, 2], "b": [3, 4]})), tmp_path / "other.parquet"
    footers, seen = Footers(), source(path, 2)
    footers.open(seen).file.close()
    pq.write_table(pa.table({"b": [5, 6] * 5, "a": [7, 8] * 5}), other, row_group_size=2)
    assert other.stat().st_size == path.stat().st_size
    shutil.copy(other, path)
    os.utime(path, ns=(7, 7))

    opened = footers.open(seen)

    assert opened.file.read_row_group(opened.groups[0]).to_pydict() == {"b": [5, 6], "a": [7, 8]}


def test_no_more_than_their_bytes_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path)
    one = Footers()
    one.open(source(path, 0))
    footers = Footers(bytes_max=3 * one.cached_bytes)

    for group in (0, 1, 2, 3, 4, 0):
        footers.open(source(path, group))

    assert one.cached_bytes < footers.cached_bytes <= 3.5 * one.cached_bytes


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    footers, wanted = Footers(), source(path, 2)
    footers.open(wanted)
    path.unlink()

    with pytest.raises(Vanished, match=str(path)):
        footers.open(wanted)
