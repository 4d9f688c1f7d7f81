"""A data file once more without some rows: the others, in their order, whatever the key is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify.erasure import file_without
from lithify.erasure.file_without import holds_any, path_without, write_without
from lithify.erasure.key_rows import Keys
from lithify.errors import Corruption
from lithify.files.local import LocalStorage
from lithify.files.parquet import Layout, encode

NAME = "write-" + "a" * 32 + ".parquet"
DAY, NOON = dt.date(2026, 11, 15), dt.datetime(2026, 11, 15, 12, 0, 0, 1)


def written(folder: Path, rows: pa.Table) -> Layout:
    layout = Layout(rows.schema, stats_columns=tuple(rows.column_names))
    (folder / NAME).write_bytes(encode(rows, layout)[0])
    return layout


def without(folder: Path, layout: Layout, keys: pa.Table) -> list[dict[str, Any]] | None:
    target = path_without(NAME, "id")
    done = write_without(LocalStorage(), folder, NAME, target, Keys(keys.column_names, keys), layout)
    assert (done.path is None) == (not (folder / target).exists())
    found = [path for path in folder.iterdir() if path.name not in (NAME, target)]
    assert found == []
    return None if done.path is None else pq.ParquetFile(folder / target).read().to_pylist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [1, -2, 3]),
        (pa.int64(), [2**60, 0, -(2**60)]),
        (pa.string(), ["é", "", "x" * 100]),
        (pa.binary(), [b"\0", b"", b"\xff" * 9]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [DAY, dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (pa.timestamp("us"), [NOON, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)]),
        (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=dt.UTC), None, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)]),
        (pa.decimal128(38, 10), [Decimal("1.5"), Decimal("-1.5"), Decimal("9" * 28)]),
        (pa.float64(), [1.5, -0.5, 1e300]),
    ],
)
def test_keys_of_every_kind(folder: Path, kind: pa.DataType, values: Sequence[Any]) -> None:
    rows = pa.table({"k": pa.array([*values, *values], kind), "n": pa.array(range(2 * len(values)), pa.int32())})
    layout = written(folder, rows)
    keys = pa.table({"k": pa.array(values[:1], kind)})
    assert holds_any(Keys(["k"], keys), folder / NAME)
    assert without(folder, layout, keys) == [row for row in rows.to_pylist() if row["k"] != values[0]]


def test_keys_of_several_columns(folder: Path) -> None:
    rows = pa.table({"a": [1, 1, 2, 2], "b": ["x", "y", "x", None], "v": [[1], [], None, [2]]})
    layout = written(folder, rows)
    assert without(folder, layout, pa.table({"a": [1, 2], "b": ["x", "y"]})) == rows.to_pylist()[1:]


def test_of_rows_that_all_go_nothing_is_left(folder: Path) -> None:
    layout = written(folder, pa.table({"k": [1, 1]}))
    assert without(folder, layout, pa.table({"k": [1]})) is None


def test_many_row_groups_and_a_column_that_the_table_has_no_more(folder: Path) -> None:
    rows = pa.table({"k": range(300), "was": [f"w{number}" for number in range(300)]})
    layout = Layout(rows.schema, row_group_rows=64)
    (folder / NAME).write_bytes(encode(rows, layout)[0])
    now = Layout(pa.schema([("k", pa.int64())]), row_group_rows=64)
    assert without(folder, now, pa.table({"k": [5, 299]})) == [r for r in rows.to_pylist() if r["k"] not in (5, 299)]


def test_what_a_crash_has_left_is_written_over_and_what_is_done_is_kept(folder: Path) -> None:
    layout = written(folder, pa.table({"k": [1, 2]}))
    target = path_without(NAME, "id")
    (folder / f".{target}.tmp").write_bytes(b"PAR1 torn")
    assert without(folder, layout, pa.table({"k": [1]})) == [{"k": 2}]
    inode = (folder / target).stat().st_ino
    assert without(folder, layout, pa.table({"k": [1]})) == [{"k": 2}]
    assert (folder / target).stat().st_ino == inode


def test_a_file_with_other_keys_than_it_should_have_does_not_get_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = written(folder, pa.table({"k": [1, 2]}))
    monkeypatch.setattr(file_without, "fingerprint_of_file", lambda *_: 7)
    keys = pa.table({"k": [1]})
    with pytest.raises(Corruption, match="nothing was changed"):
        write_without(LocalStorage(), folder, NAME, path_without(NAME, "id"), Keys(["k"], keys), layout)
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_a_torn_file_is_told_and_nothing_is_left(folder: Path) -> None:
    layout = written(folder, pa.table({"k": list(range(5000)), "t": [f"{n}" * 9 for n in range(5000)]}))
    data = bytearray((folder / NAME).read_bytes())
    data[60:200] = bytes(140)
    (folder / NAME).write_bytes(data)
    keys = pa.table({"k": [1]})
    with pytest.raises(Corruption, match=NAME):
        write_without(LocalStorage(), folder, NAME, path_without(NAME, "id"), Keys(["k"], keys), layout)
    assert [path.name for path in folder.iterdir()] == [NAME]


@pytest.mark.parametrize(
    "path", [NAME, "fold-" + "b" * 32 + "/part-00001.parquet", "fold-" + "b" * 32 + "/_day=2026-11-15/part-1.parquet"]
)
def test_names_are_made_of_the_old_one_stay_in_its_folder_and_do_not_grow(path: str) -> None:
    from lithify.core.disk_files import is_written_here

    once, other = path_without(path, "one"), path_without(path, "two")
    twice = path_without(once, "two")
    assert path_without(path, "one") == once
    assert len({path, once, other, twice}) == 4
    assert len(twice) == len(once)
    assert {Path(each).parent for each in (once, other, twice)} == {Path(path).parent}
    assert is_written_here(once)
