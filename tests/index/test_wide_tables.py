"""Files with large footers: reads parse what describes the row groups they need, and find the same rows as ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake, Settings, Table
from lithify.core.predicates import Compare
from lithify.core.read_plan import Source
from lithify.files import footer_cache
from lithify.files.examine import Examined, Named
from lithify.index import footers, rebuild
from lithify.index.footer_reader import entries_of, footers_of
from support.golden_sidecars import types_table

GROUP_ROWS, GROUPS = 1_024, 8
ROWS = GROUP_ROWS * GROUPS
pytestmark = pytest.mark.slow

NUMBERS = [f"c{number}" for number in range(40)]


def rows() -> pa.Table:
    """A column of every type, and many more; row groups are ranges of ids."""
    typed = types_table()
    typed = pa.concat_tables([typed] * (ROWS // typed.num_rows)).drop_columns(
        ["u8", "u16", "u32", "u64", "at_ns", "time"]
    )
    for number, name in enumerate(NUMBERS):
        typed = typed.append_column(name, pa.array(range(number, number + ROWS), pa.int64()))
    return typed.append_column("id", pa.array(range(ROWS), pa.int64()))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wide")
    (folder / "files").mkdir()
    pq.write_table(rows(), folder / "files" / "f.parquet", row_group_size=GROUP_ROWS)
    settings = Settings(row_group_rows=GROUP_ROWS, allowed_paths=(folder,))
    with Lake(folder / "lake", settings=settings) as lake:
        own = lake.create_table("a.own", rows().schema, key="id")
        own.upsert(rows())
        own.fold()
        lake.adopt("a.foreign", folder / "files", key="id")
    return folder


@pytest.fixture(params=["own", "foreign"])
def table(path: Path, request: pytest.FixtureRequest) -> Iterator[Table]:
    with opened(path) as lake:
        yield lake.table(f"a.{request.param}")


def opened(path: Path) -> Lake:
    return Lake(path / "lake", settings=Settings(allowed_paths=(path,)))


def left(table: Table, key: int) -> Source:
    (source,) = table._internals.opened.planned(None).plan(Compare("id", "=", key)).clean
    return source


def found(table: Table, key: int) -> tuple[str, str]:
    return repr(table.get(key)), repr(table.to_arrow(where=f"id = {key}").to_pylist())


@pytest.mark.parametrize("key", [0, GROUP_ROWS * 5 + 7, ROWS - 1])
def test_a_part_of_the_footer_leads_to_the_same_rows(table: Table, key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[str] = []
    read_part = footer_cache.read_part

    def counted(path: str, *given: object) -> object:
        parts.append(path)
        return read_part(path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(footer_cache, "read_part", counted)
    source = left(table, key)
    assert source.part is not None
    assert source.groups == (key // GROUP_ROWS,)
    with_parts = found(table, key)
    assert parts == [source.path]  # the second read finds it kept

    monkeypatch.setattr(footer_cache, "read_part", lambda *given: None)
    table._internals.runtime.serving.footers.forget()
    assert with_parts == found(table, key)
    assert f"'id': {key}" in with_parts[0]


def read_here(files: Sequence[Named], folder: str = "") -> Iterator[Examined]:
    """As the child does, which would not know what is patched."""
    if files:
        yield Examined(files, *entries_of(folder, footers_of(folder, files)))


@pytest.mark.parametrize("name", ["a.own", "a.foreign"])
def test_an_index_that_knows_no_places_leads_to_the_same_rows(
    path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as lake:
        before = found(lake.table(name), 100)
        with monkeypatch.context() as older:
            older.setattr(footers, "group_extents", lambda raw, metadata: [])
            older.setattr(rebuild, "read_by_child", read_here)
            lake.table(name).rebuild_index()

    with opened(path) as lake:
        table = lake.table(name)
        assert left(table, 100).part is None
        assert table.check_index().ok
        assert found(table, 100) == before
        table.rebuild_index()

    with opened(path) as lake:
        assert left(lake.table(name), 100).part is not None
        assert lake.table(name).check_index().ok


def test_where_most_row_groups_are_left_the_whole_footer_is_read(table: Table) -> None:
    plan = table._internals.opened.planned(None).plan(Compare("id", ">", 2 * GROUP_ROWS))

    assert [(len(source.groups or ()), source.part) for source in plan.clean] == [(GROUPS - 2, None)]
