"""Names, schemas and lakes that cannot be: refused by name, and nothing changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import Conflict, Corruption, InvalidRequest, Lake, NotFound
from lithify.core.schema import FORMAT_MAX, FORMAT_PROPERTY
from support.unchanged import files_of, nothing_changes

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        lake.create_table("a.t", SCHEMA, key="id").upsert([{"id": 1, "v": "x"}])
        yield lake


BAD_NAMES = {
    "slash": "a/b.t",
    "parent": "...t",
    "parent folder": "a.../t",
    "upwards": "../a.t",
    "single quote": "a.t'",
    "double quote": 'a."t"',
    "space": "a.my table",
    "300 characters": "a." + "t" * 300,
    "no namespace": "t",
    "three parts": "a.b.t",
    "empty": "",
    "empty table": "a.",
    "upper case": "a.Orders",
    "digit first": "a.1t",
    "control folder": "_lithify.jobs",
    "newline": "a.t\n",
    "null byte": "a.t\0",
    "umlaut": "a.über",
}


@pytest.mark.parametrize("case", BAD_NAMES)
@pytest.mark.parametrize("method", ["create", "open", "drop"])
def test_a_bad_table_name_is_refused(lake: Lake, case: str, method: str) -> None:
    name = BAD_NAMES[case]
    calls: dict[str, Any] = {
        "create": lambda: lake.create_table(name, SCHEMA),
        "open": lambda: lake.table(name),
        "drop": lambda: lake.drop_table(name),
    }
    with nothing_changes(lake), pytest.raises(InvalidRequest) as caught:
        calls[method]()
    assert repr(name)[1:50].rstrip("'\"") in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_table_name_of_another_type_is_refused(lake: Lake) -> None:
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="int"):
        lake.table(7)  # type: ignore[arg-type]


BAD_COLUMNS = {
    "seq": "_seq",
    "operation": "_op",
    "day": "_day",
    "reserved in upper case": "_SEQ",
    "reserved prefix": "_lithify_rank",
    "space": "my column",
    "dot": "a.b",
    "double quote": 'a"b',
    "backtick": "a`b",
    "comma": "a,b",
    "newline": "a\nb",
    "equals": "a=b",
    "slash": "a/b",
    "empty": "",
    "300 characters": "c" * 300,
}


@pytest.mark.parametrize("case", BAD_COLUMNS)
def test_a_bad_column_name_is_refused(lake: Lake, case: str) -> None:
    name = BAD_COLUMNS[case]
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="column name") as caught:
        lake.create_table("a.new", pa.schema([("id", pa.int64()), (name, pa.int64())]))
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="column name"):
        lake.table("a.t").add_column(pa.field(name, pa.int64()))
    assert repr(name)[1:50].rstrip("'\"") in str(caught.value)


LIST, STRUCT = pa.list_(pa.int64()), pa.struct([("x", pa.int64())])
BAD_DEFINITIONS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "float key": (pa.schema([("f", pa.float64())]), {"key": "f"}, "'f' is floating point"),
    "float32 key": (pa.schema([("f", pa.float32())]), {"key": ["f"]}, "'f' is floating point"),
    "list key": (pa.schema([("l", LIST)]), {"key": "l"}, "'l'"),
    "struct key": (pa.schema([("s", STRUCT)]), {"key": "s"}, "'s'"),
    "unknown key": (SCHEMA, {"key": "nope"}, "'nope'"),
    "key twice": (SCHEMA, {"key": ["id", "id"]}, "twice"),
    "unknown order": (SCHEMA, {"key": "id", "order_by": "nope"}, "'nope'"),
    "order without key": (SCHEMA, {"order_by": "v"}, "order_by"),
    "order by the key": (SCHEMA, {"key": "id", "order_by": "id"}, "'id'"),
    "float order": (pa.schema([("id", pa.int64()), ("f", pa.float64())]), {"key": "id", "order_by": "f"}, "'f'"),
    "time that is none": (SCHEMA, {"time": "v"}, "'v' is string"),
    "unknown time": (SCHEMA, {"time": "nope"}, "'nope'"),
    "float partition": (pa.schema([("f", pa.float64())]), {"partition_by": "f"}, "'f'"),
    "binary partition": (pa.schema([("b", pa.binary())]), {"partition_by": "b"}, "'b'"),
    "no columns": (pa.schema([]), {}, "at least one column"),
    "a column twice": (pa.schema([("a", pa.int64()), ("a", pa.int64())]), {}, "'a'"),
    "a column twice but for case": (pa.schema([("a", pa.int64()), ("A", pa.int64())]), {}, "'A'"),
    "uint64": (pa.schema([("u", pa.uint64())]), {}, "'u' is uint64"),
    "time of day": (pa.schema([("t", pa.time64("us"))]), {}, "'t'"),
    "duration": (pa.schema([("d", pa.duration("us"))]), {}, "'d'"),
    "wide decimal": (pa.schema([("d", pa.decimal256(50, 2))]), {}, "'d'"),
    "null type inside a list": (pa.schema([("l", pa.list_(pa.null()))]), {}, "'l[]'"),
    "empty struct": (pa.schema([("s", pa.struct([]))]), {}, "'s'"),
    "no schema": ({"id": "int"}, {}, "dict"),
}


@pytest.mark.parametrize("case", BAD_DEFINITIONS)
def test_a_bad_definition_is_refused(lake: Lake, case: str) -> None:
    schema, options, names = BAD_DEFINITIONS[case]
    with nothing_changes(lake), pytest.raises(InvalidRequest) as caught:
        lake.create_table("a.new", schema, **options)
    assert names in str(caught.value)
    assert lake.tables() == ["a.t"]


def test_a_table_that_exists_is_not_created_again(lake: Lake) -> None:
    with nothing_changes(lake), pytest.raises(Conflict, match=r"a\.t exists already"):
        lake.create_table("a.t", SCHEMA, key="id")
    with nothing_changes(lake), pytest.raises(Conflict, match=r"another key: it has id, asked for was none"):
        lake.create_table("a.t", SCHEMA, if_not_exists=True)
    more = SCHEMA.append(pa.field("more", pa.int64()))
    with (
        nothing_changes(lake),
        pytest.raises(Conflict, match=r"a\.t exists with other columns: .*asked for were .*more"),
    ):
        lake.create_table("a.t", more, key="id", if_not_exists=True)
    with nothing_changes(lake):
        lake.create_table("a.t", SCHEMA, key="id", if_not_exists=True)


def test_a_table_that_does_not_exist_is_named(lake: Lake) -> None:
    for call in (lake.table, lake.drop_table):
        with nothing_changes(lake), pytest.raises(NotFound, match=r"a\.gone"):
            call("a.gone")
    with pytest.raises(NotFound, match="gone"):
        lake.sql("select * from a.gone")


def test_a_dropped_table_is_gone_for_its_old_handle(lake: Lake) -> None:
    table = lake.table("a.t")
    lake.drop_table("a.t")
    for call in (table.to_arrow, table.fold, table.history, lambda: table.upsert([{"id": 1}]), lambda: table.get(1)):
        with pytest.raises(NotFound, match=r"a\.t"):
            call()


def test_a_column_that_exists_or_must_not_be_null_is_not_added(lake: Lake) -> None:
    with nothing_changes(lake), pytest.raises(Conflict, match="'v' already"):
        lake.table("a.t").add_column(pa.field("V", pa.int64()))
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="'w' must be nullable"):
        lake.table("a.t").add_column(pa.field("w", pa.int64(), nullable=False))
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="'w'"):
        lake.table("a.t").add_column(pa.field("w", pa.uint64()))


# -- SQL


@pytest.mark.parametrize(
    "statement",
    [
        "create external table x stored as parquet location '/etc'",
        "create view a.v as select 1",
        "explain delete from a.t",
        "(delete from a.t)",
        "copy a.t to '/tmp/stolen.parquet'",
        "set datafusion.execution.batch_size = 1",
        "select * from '/etc/passwd'",
        "select * from read_parquet('/etc/passwd')",
        "select * from a.t where",
        "selct 1",
        "",
    ],
)
def test_sql_reaches_nothing_but_tables(lake: Lake, statement: str) -> None:
    with nothing_changes(lake), pytest.raises((InvalidRequest, NotFound)):
        lake.sql(statement)


# -- versions


def test_a_seq_that_never_was_is_named(lake: Lake) -> None:
    with pytest.raises(NotFound, match=r"a\.t has no seq 7: it has 0 to 1"):
        lake.table("a.t").to_arrow(as_of=7)


def test_a_version_that_vacuum_removed_is_named(lake: Lake) -> None:
    table = lake.table("a.t")
    table.fold()
    table.upsert([{"id": 1, "v": "newer"}])
    table.upsert([{"id": 1, "v": "newest"}])
    table.fold()
    for file in (lake.path / "a" / "t" / "changes").glob("*.parquet"):
        file.unlink()
    with Lake(lake.path) as fresh:
        with pytest.raises(NotFound, match=r"as of 2 can no longer be read.*choose a newer seq"):
            fresh.table("a.t").to_arrow(as_of=2)
        with pytest.raises(NotFound, match="no longer complete"):
            fresh.table("a.t").changes(since=0)
        assert fresh.table("a.t").to_arrow().to_pylist() == [{"id": 1, "v": "newest"}]
        assert fresh.table("a.t").to_arrow(as_of=3).to_pylist() == [{"id": 1, "v": "newest"}]


def test_a_commit_that_is_no_longer_in_the_log_is_named(folder: Path) -> None:
    from lithify import Settings

    with Lake(folder / "lake", settings=Settings(checkpoint_every=2)) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        for i in range(4):
            table.upsert([{"id": i}], missing="null")
    for version in range(3):
        (folder / "lake" / "a" / "t" / "changes" / "_delta_log" / f"{version:020d}.json").unlink()
    with Lake(folder / "lake") as lake:
        assert lake.table("a.t").to_arrow().num_rows == 4
        with pytest.raises(NotFound, match=r"seq 1 .*choose a newer"):
            lake.table("a.t").to_arrow(as_of=1)
        lake.table("a.t").upsert([{"id": 9}], missing="null")
        assert lake.table("a.t").to_arrow().num_rows == 5


# -- lakes


def test_a_folder_that_is_no_lake_is_refused(folder: Path) -> None:
    (folder / "photo.jpg").write_bytes(b"")
    with pytest.raises(InvalidRequest, match="no lake and not empty"):
        Lake(folder)
    with pytest.raises(NotFound, match="no lake"):
        Lake(folder, create=False)
    with pytest.raises(NotFound, match="no lake"):
        Lake(folder / "new", create=False)
    with pytest.raises(InvalidRequest, match="is a file"):
        Lake(folder / "photo.jpg")
    with pytest.raises(InvalidRequest, match="Google Cloud Storage"):
        Lake("gs://bucket/lake")
    assert files_of(folder) == {"photo.jpg"}


def test_a_path_that_is_misspelt_does_not_become_a_lake(folder: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere is no folder, so no lake is made in it.*lithify init"):
        Lake(folder / "nowhere" / "lake")
    with pytest.raises(NotFound, match="is no lake"):
        Lake(folder / "lake", create=False)
    assert list(folder.iterdir()) == []
    Lake(folder / "nowhere" / "lake", create=True).close()
    Lake(folder / "nowhere" / "lake", create=False).close()


def test_a_new_lake_is_told_of_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        Lake(folder / "lake").close()
    Lake(folder / "said", create=True).close()
    assert [record.message for record in caplog.records] == [f"made a new lake in {folder / 'lake'}"]


def test_a_lake_of_a_newer_format_is_refused(lake: Lake) -> None:
    (lake.path / "_lithify" / "lake.json").write_text('{"format": 2}')
    with pytest.raises(InvalidRequest, match=r"newer Lithify.*upgrade"):
        Lake(lake.path)


@pytest.mark.parametrize("text", ["", "{", '{"format": "x"}', "[]", "{}"])
def test_a_lake_with_a_broken_marker_is_named(lake: Lake, text: str) -> None:
    (lake.path / "_lithify" / "lake.json").write_text(text)
    with pytest.raises(Corruption, match=r"lake\.json is not readable"):
        Lake(lake.path)


def test_a_table_of_a_newer_format_is_refused_and_the_others_work(lake: Lake) -> None:
    lake.create_table("a.fine", SCHEMA)
    DeltaTable(lake.path / "a" / "t" / "changes").alter.set_table_properties(
        {FORMAT_PROPERTY: str(FORMAT_MAX + 1)}, False
    )
    with Lake(lake.path) as fresh:
        with pytest.raises(InvalidRequest, match=r"a\.t was written by a newer Lithify"):
            fresh.table("a.t")
        assert fresh.tables() == ["a.fine", "a.t"]
        assert fresh.table("a.fine").append([{"id": 1}]).seq == 1


def test_a_closed_lake_says_so(folder: Path) -> None:
    lake = Lake(folder / "lake")
    lake.close()
    for call in (lambda: lake.table("a.t"), lambda: lake.sql("select 1")):
        with pytest.raises(InvalidRequest, match="closed"):
            call()


# -- adopting


def test_a_table_with_column_mapping_is_not_adopted(lake: Lake, folder: Path) -> None:
    DeltaTable.create(folder / "mapped", _delta_schema(), configuration={"delta.columnMapping.mode": "name"})
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="mapped uses column mapping"):
        lake.adopt("a.new", folder / "mapped")


def test_a_table_with_deletion_vectors_is_not_adopted(lake: Lake, folder: Path) -> None:
    DeltaTable.create(folder / "vectors", _delta_schema(), configuration={"delta.enableDeletionVectors": "true"})
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="vectors uses deletion vectors"):
        lake.adopt("a.new", folder / "vectors")


def test_what_is_no_table_is_not_adopted(lake: Lake, folder: Path) -> None:
    (folder / "empty").mkdir()
    with nothing_changes(lake), pytest.raises(NotFound, match="empty holds neither"):
        lake.adopt("a.new", folder / "empty")
    with nothing_changes(lake), pytest.raises(NotFound, match="nowhere is no folder"):
        lake.adopt("a.new", folder / "nowhere")
    with nothing_changes(lake), pytest.raises(InvalidRequest, match="inside this lake"):
        lake.adopt("a.new", lake.table("a.t").base_path)
    (folder / "broken").mkdir()
    (folder / "broken" / "part.parquet").write_bytes(b"PAR1 no")
    with nothing_changes(lake), pytest.raises(Corruption, match=r"part\.parquet"):
        lake.adopt("a.new", folder / "broken")


def test_a_table_whose_key_is_not_unique_is_not_adopted(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "twice", pa.table({"id": [1, 1, 2], "v": ["a", "b", "c"]}))
    (folder / "nulls").mkdir()
    pq.write_table(pa.table({"id": pa.array([1, None]), "v": ["a", "b"]}), folder / "nulls" / "part.parquet")
    for name in ("twice", "nulls"):
        with nothing_changes(lake), pytest.raises(InvalidRequest, match="id"):
            lake.adopt("a.new", folder / name, key="id")


def test_an_adopted_table_takes_changes_and_folds(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "given", pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    table = lake.adopt("a.given", folder / "given", key="id")
    table.upsert([{"id": 2, "v": "new"}])
    table.delete([3])
    expected = [{"id": 1, "v": "a"}, {"id": 2, "v": "new"}]
    assert table.to_arrow().sort_by("id").to_pylist() == expected

    table.fold()

    assert table.to_arrow().sort_by("id").to_pylist() == expected
    assert DeltaTable(folder / "given").to_pyarrow_table().sort_by("id").to_pylist() == expected


def test_a_table_that_another_lake_has_folded_into_is_adopted_with_all_writes_visible(lake: Lake, folder: Path) -> None:
    write_deltalake(folder / "given", pa.table({"id": [1], "v": ["a"]}))
    with Lake(folder / "before") as before:
        table = before.adopt("a.given", folder / "given", key="id")
        for number in range(3):
            table.upsert([{"id": number, "v": "before"}])
        table.fold()
        before.drop_table("a.given")

    table = lake.adopt("a.given", folder / "given", key="id")
    table.upsert([{"id": 1, "v": "after"}])

    assert table.get(1) == {"id": 1, "v": "after"}
    assert table.to_arrow().num_rows == 3


def _delta_schema() -> Any:
    from deltalake import Schema

    return Schema.from_json(
        json.dumps({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]})
    )
