"""The index of a table may be missing, behind, ahead, damaged or somebody else's: answers stay the same."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging
import pickle
import shutil
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lithify import Corruption, Lake, Settings, Table
from lithify.compute.compute import HereCompute
from lithify.core.predicates import Compare, IsNull, Predicate, both
from lithify.core.read_plan import PruningReport
from lithify.files.open_parquet import footer_of, read_footer
from lithify.files.parquet import NAN_FREE
from lithify.index import rebuild, table_index
from lithify.index import writer as sidecar_writer
from lithify.index.footers import entry_of
from lithify.index.writer import create as create_index
from lithify.lake.internals import internals
from lithify.read import one_row
from support import children, indexed
from support.effort import thinned
from support.faults import FaultyStore, Gate, RecordingStore, disk_full
from support.indexed import FILE_ROWS, FILES, SETTINGS, index_of, index_path, wrong_answers
from support.moments import Moment, moments

pytestmark = pytest.mark.slow


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=SETTINGS) as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    return indexed.create(lake)


@pytest.fixture
def expected(table: Table) -> list[dict[str, Any]]:
    """Every row, read without an index."""
    return rows_of(table)


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(indexed.read(internals(table).reader.plan(table.snapshot())), key=lambda row: row["id"])


def report(table: Table, predicate: Predicate | None, as_of: int | None = None) -> PruningReport:
    found = table._internals.opened.planned(as_of).plan(predicate).pruning
    assert found is not None
    return found


def fallbacks(table: Table, cause: str) -> float:
    return (
        table._internals.runtime.counters.registry.get_sample_value("lithify_index_fallbacks_total", {"cause": cause})
        or 0
    )


def failures(table: Table) -> float:
    return table._internals.runtime.counters.registry.get_sample_value("lithify_index_failures_total") or 0


# -- kept by whoever commits


def test_a_selective_read_plans_the_row_groups_it_needs(table: Table) -> None:
    found = report(table, Compare("id", "=", 1_234))

    assert (found.files_total, found.files_read, found.files_unknown) == (FILES, 1, 0)
    assert (found.groups_total, found.groups_read) == (3 * FILES, 1)
    assert 0 < found.bytes_read < found.bytes_total / 5
    assert list(found.reasons) == [("id = 1234", 3 * FILES - 1)]


def test_without_a_predicate_everything_is_planned(table: Table) -> None:
    found = report(table, None)

    assert (found.groups_read, found.bytes_read) == (found.groups_total, found.bytes_total)


def test_a_source_says_which_row_groups_and_how_large_they_are(table: Table) -> None:
    plan = table._internals.opened.planned().plan(Compare("id", "=", 1_234))

    (source,) = plan.clean
    assert source.groups == (1,)
    assert source.raw_bytes == pq.read_metadata(source.path).row_group(1).total_byte_size


@pytest.mark.parametrize("how", ["link", "rewrite", "delete", "compact", "optimize", "bulk of changes"])
def test_every_rewrite_keeps_the_index_complete(table: Table, how: str) -> None:
    if how == "link":
        table.upsert(indexed.rows(FILES * FILE_ROWS, 100))
        table.fold()
    elif how == "rewrite":
        table.upsert(indexed.rows(10, 3_000, v="changed"))
        table.fold()
    elif how == "delete":
        table.delete(list(range(0, FILE_ROWS)))
        table.fold()
    elif how == "compact":
        table.compact()
    elif how == "optimize":
        table.optimize(by=["x", "id"])
    else:
        table.upsert(indexed.rows(FILES * FILE_ROWS, 25_000))

    assert table.check_index().ok
    assert report(table, Compare("id", "=", 2_600)).files_unknown == 0
    assert wrong_answers(table, rows_of(table)) == []


def test_large_changes_that_stand_beside_base_are_pruned_too(table: Table) -> None:
    table.upsert(indexed.rows(FILES * FILE_ROWS, 25_000))

    found = report(table, Compare("id", "=", FILES * FILE_ROWS + 20_000))

    assert (found.files_read, found.groups_read) == (1, 1)
    assert wrong_answers(table, rows_of(table)) == []


def test_pending_changes_win_over_what_is_pruned(table: Table, expected: list[dict[str, Any]]) -> None:
    table.upsert(indexed.rows(1_000, 300, v="changed"))
    table.delete([2_700, 9])

    changed = {row["id"]: row for row in (*expected, *indexed.rows(1_000, 300, v="changed").to_pylist())}
    assert wrong_answers(table, [row for id_, row in changed.items() if id_ not in (2_700, 9)]) == []


def test_a_small_write_does_not_touch_the_index(folder: Path, table: Table) -> None:
    store = RecordingStore()
    with Lake(folder / "lake", settings=SETTINGS, store=store) as other:
        other.table("a.t").upsert(indexed.rows(0, 1_000))

    assert [point for point in store.points if "sidecar" in point or "index" in point] == []


def test_dead_space_is_given_back(
    table: Table, expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_writer, "DEAD_BYTES_MIN", 0)
    for _ in range(4):
        table.optimize(by=["id"])

    facts = table.inspect_index().base
    assert facts is not None
    assert facts.dead_bytes <= facts.bytes / 2
    assert table.check_index().ok
    assert wrong_answers(table, expected) == []


# -- missing, behind, damaged, foreign


def test_a_missing_index_is_built_again(
    folder: Path, table: Table, expected: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    index_path(folder / "lake").unlink()

    with caplog.at_level(logging.INFO, "lithify"), Lake(folder / "lake", settings=SETTINGS) as other:
        again = other.table("a.t")
        assert wrong_answers(again, expected) == []
        assert report(again, Compare("id", "=", 1_234)).files_unknown == 0
        assert fallbacks(again, "missing") == 1
    assert [record.message for record in caplog.records if "index" in record.message] == [
        f"the index of a.t is missing ({FILES} of {FILES} files): it is completed from Parquet footers"
    ]
    assert table.check_index().ok


def test_an_index_that_is_behind_is_completed(folder: Path, table: Table) -> None:
    path = index_path(folder / "lake")
    before = path.read_bytes()
    table.upsert(indexed.rows(0, FILE_ROWS, v="changed"))
    table.upsert(indexed.rows(FILES * FILE_ROWS, FILE_ROWS))
    table.fold()
    path.write_bytes(before)

    with Lake(folder / "lake", settings=SETTINGS) as other:
        again = other.table("a.t")
        assert wrong_answers(again, rows_of(again)) == []
        assert fallbacks(again, "stale") == 1
        assert again.check_index().missing == ()


def damaged(data: bytes, how: str) -> bytes:
    middle = len(data) // 2
    return {
        "empty": b"",
        "cut": data[:middle],
        "flipped at its start": bytes([data[0] ^ 1]) + data[1:],
        "flipped in the middle": data[:middle] + bytes([data[middle] ^ 0x40]) + data[middle + 1 :],
        "flipped at its end": data[:-1] + bytes([data[-1] ^ 1]),
        "something else": b"not an index at all " * 40,
    }[how]


DAMAGE = ["empty", "cut", "flipped at its start", "flipped in the middle", "flipped at its end", "something else"]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_index_is_built_again(folder: Path, table: Table, expected: list[dict[str, Any]], how: str) -> None:
    path = index_path(folder / "lake")
    path.write_bytes(damaged(path.read_bytes(), how))

    with Lake(folder / "lake", settings=SETTINGS) as other:
        again = other.table("a.t")
        assert wrong_answers(again, expected) == []
        again.upsert(indexed.rows(FILES * FILE_ROWS, 10))
        again.fold()
        assert wrong_answers(again, rows_of(again)) == []
        assert again.check_index().different == ()


@pytest.mark.parametrize("how", DAMAGE)
def test_an_index_that_is_damaged_while_it_is_in_use(
    folder: Path, table: Table, expected: list[dict[str, Any]], how: str
) -> None:
    assert wrong_answers(table, expected) == []
    path = index_path(folder / "lake")
    path.write_bytes(damaged(path.read_bytes(), how))

    assert wrong_answers(table, expected) == []
    table.upsert(indexed.rows(FILES * FILE_ROWS, 10))
    table.fold()
    assert wrong_answers(table, rows_of(table)) == []


def test_the_read_that_finds_an_index_damaged_leaves_a_new_one(folder: Path, table: Table) -> None:
    path = index_path(folder / "lake")
    data = path.read_bytes()
    block = data.index(b"PMBK")
    path.write_bytes(data[: block + 60] + bytes([data[block + 60] ^ 1]) + data[block + 61 :])

    with Lake(folder / "lake", settings=SETTINGS) as again:
        assert wrong_answers(again.table("a.t"), rows_of(table)) == []
        assert again.table("a.t").check_index().ok


def test_two_builds_at_once_leave_one_entry_per_file(folder: Path, table: Table) -> None:
    files = table.snapshot().base
    entries, _ = table_index.read_entries(table.base_path, files)

    index_of(table).add(table.snapshot().base_version, entries)

    found = table.inspect_index().base
    assert found is not None
    assert found.files == len(files)


def test_a_commit_onto_a_damaged_index_writes_it_anew(folder: Path, table: Table) -> None:
    path = index_path(folder / "lake")
    path.write_bytes(damaged(path.read_bytes(), "flipped at its start"))

    table.upsert(indexed.rows(FILES * FILE_ROWS, 10))
    table.fold()

    assert fallbacks(table, "corrupt") >= 1
    assert wrong_answers(table, rows_of(table)) == []
    assert table.check_index().ok


def test_the_index_of_another_table_is_not_believed(folder: Path, lake: Lake, table: Table) -> None:
    other = indexed.create(lake, "b.t", files=2)
    shutil.copy(index_of(other).path, index_path(folder / "lake"))

    with Lake(folder / "lake", settings=SETTINGS) as again:
        assert wrong_answers(again.table("a.t"), rows_of(table)) == []
        assert again.table("a.t").check_index().ok


def test_a_table_that_is_created_anew_has_an_index_of_its_own(folder: Path, lake: Lake, table: Table) -> None:
    copy = index_path(folder / "lake").read_bytes()
    lake.drop_table("a.t")
    assert not index_path(folder / "lake").exists()
    index_path(folder / "lake").parent.mkdir(exist_ok=True)
    index_path(folder / "lake").write_bytes(copy)

    again = indexed.create(lake, files=2)

    assert wrong_answers(again, rows_of(again)) == []
    assert again.check_index().ok


def test_an_entry_of_a_file_with_another_size_is_not_believed(table: Table, expected: list[dict[str, Any]]) -> None:
    index = index_of(table)
    snapshot = table.snapshot()
    wrong = footer_of(read_footer(index.data / snapshot.base[0].path), "a footer")
    entries = [entry_of(wrong, file.path, file.size_bytes + 1) for file in snapshot.base]
    create_index(
        table._internals.runtime.store, index.path, table._internals.incarnation, snapshot.base_version, entries
    )

    with Lake(table._internals.runtime.root, settings=SETTINGS) as other:
        assert wrong_answers(other.table("a.t"), expected) == []


def test_a_file_that_stands_twice_in_the_index_counts_once(table: Table, expected: list[dict[str, Any]]) -> None:
    index, snapshot = index_of(table), table.snapshot()
    entries, _ = table_index.read_entries(index.data, snapshot.base[:2])
    index.add(snapshot.base_version, entries)

    with Lake(table._internals.runtime.root, settings=SETTINGS) as other:
        again = other.table("a.t")
        assert report(again, None).groups_total == 3 * FILES
        assert wrong_answers(again, expected) == []


# -- several at work


def test_another_process_catches_up(folder: Path, table: Table) -> None:
    assert report(table, Compare("id", "=", 1_234)).files_total == FILES

    child = children.start(indexed.commit_often, str(folder / "lake"), 5, scratch=folder)
    while child.is_alive():
        planned = table._internals.opened.planned()
        wanted = planned.plan(Compare("id", ">=", FILE_ROWS))
        assert sum(row["id"] >= FILE_ROWS for row in indexed.read(wanted)) == planned.snapshot.base_rows - FILE_ROWS + (
            planned.snapshot.pending_rows
        )
    assert children.finish(child) == 0

    assert report(table, Compare("id", "=", 1_234)).files_total == FILES + 5
    assert wrong_answers(table, rows_of(table)) == []
    assert table.check_index().ok


def test_two_processes_commit_at_once(folder: Path, table: Table) -> None:
    both_ = [children.start(indexed.commit_often, str(folder / "lake"), 4, scratch=folder) for _ in range(2)]
    assert [children.finish(child) for child in both_] == [0, 0]

    assert wrong_answers(table, rows_of(table)) == []
    found = table.check_index()
    assert (found.missing, found.different) == ((), ())


def test_entries_of_files_that_are_gone_are_forgotten(
    table: Table, expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(table)
    with monkeypatch.context() as patched:
        patched.setattr(index, "after_commit", lambda *_: None)
        table.optimize(by=["id"])

    report(table, None)

    assert table.check_index().ok
    assert wrong_answers(table, expected) == []


# -- trouble while it is written


def test_a_kill_at_every_step_leaves_the_same_answers(folder: Path, lake: Lake, table: Table) -> None:
    lake.close()
    found = moments(indexed.change_and_fold, str(folder / "lake"), folder=folder / "lake", copies=folder / "left")
    chosen = thinned(found, Moment.classes)

    assert {"sidecar.append", "sidecar.head"} <= {point for moment in chosen for point in moment.points}
    for moment in chosen:
        with Lake(moment.path, settings=SETTINGS) as left:
            again = left.table("a.t")
            expected = rows_of(again)
            assert wrong_answers(again, expected) == [], str(moment)
            assert again.check_index().different == (), str(moment)
            again.fold()
            assert wrong_answers(again, expected) == [], str(moment)
            assert again.check_index().ok, str(moment)


def test_what_a_killed_writer_left_behind_goes(folder: Path, lake: Lake, table: Table) -> None:
    lake.close()
    path = index_path(folder / "lake")
    path.rename(path.with_name(f".{path.name}.4711.12345"))

    with Lake(folder / "lake", settings=SETTINGS) as other:
        assert report(other.table("a.t"), Compare("id", "=", 1_234)).files_unknown == 0

    assert sorted(entry.name for entry in path.parent.iterdir()) == ["base.pm", "base.pm.lock"]


@pytest.mark.parametrize("point", ["sidecar.append", "sidecar.head", "sidecar.create"])
def test_a_full_disk_does_not_fail_the_commit(
    folder: Path, lake: Lake, table: Table, point: str, caplog: pytest.LogCaptureFixture
) -> None:
    lake.close()
    if point == "sidecar.create":
        index_path(folder / "lake").unlink()
    store = FaultyStore(point, disk_full, times=None)
    with Lake(folder / "lake", settings=SETTINGS, store=store) as full:
        again = full.table("a.t")
        for number in range(2):
            again.upsert(indexed.rows((FILES + number) * FILE_ROWS, 10))
            assert again.fold().inserted == 10
        assert store.reached
        assert failures(again) >= 2
        assert wrong_answers(again, rows_of(again)) == []
    told = [record.message for record in caplog.records if "cannot be written to" in record.message]
    assert len(told) == 1
    with Lake(folder / "lake", settings=SETTINGS) as other:
        assert wrong_answers(other.table("a.t"), rows_of(other.table("a.t"))) == []
        assert other.table("a.t").check_index().missing == ()


# -- in the background


def test_many_unknown_files_are_indexed_in_the_background(
    folder: Path, lake: Lake, table: Table, expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.close()
    index_path(folder / "lake").unlink()
    monkeypatch.setattr(table_index, "LOOKUPS_MAX", 2)
    gate = Gate()
    with Lake(folder / "lake", settings=SETTINGS, store=FaultyStore("index.read", gate.hold)) as slow:
        again = slow.table("a.t")
        assert report(again, Compare("id", "=", 1_234)).files_unknown == FILES
        gate.wait()
        assert wrong_answers(again, expected) == []
        gate.open()
        index_of(again).wait()
        assert report(again, Compare("id", "=", 1_234)).files_unknown == 0
        assert wrong_answers(again, expected) == []


def test_closing_the_lake_ends_the_build(
    folder: Path, lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.close()
    index_path(folder / "lake").unlink()
    monkeypatch.setattr(table_index, "LOOKUPS_MAX", 0)
    monkeypatch.setattr(table_index, "BATCH_FILES", 1)
    store = RecordingStore()
    with Lake(folder / "lake", settings=SETTINGS, store=store) as closing:
        index = index_of(closing.table("a.t"))
        index.stop.set()
        report(closing.table("a.t"), None)
    assert "index.read" not in store.points
    assert index._builder is None or not index._builder.is_alive()


# -- the past, and other writers


def test_the_past_is_pruned_by_what_was_known_then(
    table: Table, expected: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    seq = table.snapshot().seq
    table.upsert(indexed.rows(1_000, 2_000, v="changed"))
    table.fold()

    assert wrong_answers(table, expected, as_of=seq) == []
    assert report(table, Compare("id", "=", 1_234), as_of=seq).files_unknown == 0
    monkeypatch.setattr(sidecar_writer, "DEAD_BYTES_MIN", 0)
    for _ in range(3):
        table.optimize(by=["id"])
    assert wrong_answers(table, expected, as_of=seq) == []
    assert table.check_index().extra == ()


def test_an_adopted_folder_is_indexed(folder: Path, lake: Lake) -> None:
    (folder / "files").mkdir()
    for number in range(3):
        pq.write_table(indexed.rows(number * FILE_ROWS, FILE_ROWS), folder / "files" / f"{number}.parquet", 1_000)

    table = lake.adopt("a.adopted", folder / "files", key="id")

    assert table.check_index().ok
    assert report(table, Compare("id", "=", 1_234)).groups_read == 1
    assert wrong_answers(table, rows_of(table)) == []


def test_an_adopted_delta_table_is_pruned_by_its_partitions(folder: Path, lake: Lake) -> None:
    data = indexed.rows(0, 3_000).append_column("p", pa.array(["one", "two", None] * 1_000))
    write_deltalake(folder / "d", data, partition_by=["p"])
    table = lake.adopt("a.adopted", folder / "d", key="id")
    expected = rows_of(table)

    found = table._internals.opened.planned().plan(both([Compare("p", "=", "two"), Compare("id", "<", 100)]))

    assert found.pruning is not None
    assert (found.pruning.files_total, found.pruning.files_read, found.pruning.files_unknown) == (3, 1, 0)
    wanted = [row for row in indexed.read(found) if row["p"] == "two" and row["id"] < 100]
    assert sorted(row["id"] for row in wanted) == [r["id"] for r in expected if r["p"] == "two" and r["id"] < 100]
    assert wrong_answers(table, expected) == []


def test_what_another_writer_commits_to_an_adopted_base_is_found(folder: Path, lake: Lake) -> None:
    write_deltalake(folder / "d", indexed.rows(0, FILE_ROWS))
    table = lake.adopt("a.adopted", folder / "d", key="id")
    assert report(table, Compare("id", "=", 10)).files_total == 1

    write_deltalake(folder / "d", indexed.rows(FILE_ROWS, FILE_ROWS), mode="append")

    found = report(table, Compare("id", "=", FILE_ROWS + 10))
    assert (found.files_total, found.files_read, found.files_unknown) == (2, 1, 0)
    assert wrong_answers(table, rows_of(table)) == []
    write_deltalake(folder / "d", indexed.rows(0, 10), mode="overwrite")
    assert wrong_answers(table, rows_of(table)) == []
    assert table.check_index().missing == ()


def test_a_file_that_is_not_what_the_log_says_is_looked_up_once(folder: Path, lake: Lake) -> None:
    write_deltalake(folder / "d", indexed.rows(0, 100))
    log = folder / "d" / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('\\"numRecords\\":100', '\\"numRecords\\":99'))
    table = lake.adopt("a.adopted", folder / "d", key="id")

    for _ in range(3):
        assert report(table, Compare("id", "=", 1_000)).files_unknown == 1

    facts = table.inspect_index().base
    assert facts is not None
    assert facts.files <= 2
    assert wrong_answers(table, rows_of(table)) == []


def test_a_column_that_was_added_later_is_null_in_older_files(table: Table) -> None:
    table.add_column(pa.field("w", pa.int64()))
    table.upsert(indexed.rows(FILES * FILE_ROWS, 10).append_column("w", pa.array(range(10))))
    table.fold()

    assert report(table, Compare("w", "=", 3)).files_read == 1
    assert report(table, IsNull("w")).files_read == FILES
    assert report(table, IsNull("w", negated=True)).files_read == 1


# -- order_by


ORDERED = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])


def ordered_rows(first: int, count: int, at: int, v: str) -> pa.Table:
    return pa.table({"id": range(first, first + count), "at": [at] * count, "v": [v] * count}, schema=ORDERED)


@pytest.mark.parametrize("resolve_rows_max", [1, 20_000_000])
def test_a_filter_does_not_bring_an_older_version_back(folder: Path, resolve_rows_max: int) -> None:
    """The row of base wins by its order. A condition that it does not meet must not let the change that lost win."""
    settings = Settings(actor="index", row_group_rows=1024, resolve_rows_max=resolve_rows_max)
    with Lake(folder / "lake", settings=settings) as lake:
        table = lake.create_table("a.t", ORDERED, key="id", order_by="at")
        for number in range(3):
            table.upsert(ordered_rows(number * 2_000, 2_000, at=100, v="new"))
        table.fold()
        table.upsert(ordered_rows(10, 5, at=1, v="late"))

        by_value = table._internals.opened.planned().plan(Compare("v", "=", "late"))
        by_key = table._internals.opened.planned().plan(both([Compare("id", "<", 20), Compare("v", "=", "late")]))

        serving = table._internals.runtime.serving
        assert serving.read(by_value, where="v = 'late'").num_rows == 0
        assert serving.read(by_key, where="v = 'late' and id < 20").num_rows == 0
        assert by_key.pruning is not None
        assert by_key.pruning.files_read <= 1
        assert by_value.pruning is not None
        if by_value.overlay is None:
            assert by_value.pruning.groups_read == by_value.pruning.groups_total
        assert table.get(12) == {"id": 12, "at": 100, "v": "new"}


def test_without_an_order_any_filter_prunes_what_is_merged_later(folder: Path) -> None:
    with Lake(folder / "lake", settings=Settings(row_group_rows=1024, resolve_rows_max=1)) as lake:
        table = indexed.create(lake)
        table.upsert(indexed.rows(10, 5, v="changed"))

        plan = table._internals.opened.planned().plan(Compare("v", "<", "row 001000"))

        assert plan.overlay is None
        assert plan.pruning is not None
        assert plan.pruning.groups_read == 1
        found = table._internals.runtime.serving.read(plan, where="v < 'row 001000'")
        assert found.num_rows == 1_000


# -- one row


MOMENT = dt.datetime(2026, 11, 15, 12, 30, 1, 250_001)
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int32": (pa.int32(), [-5, 0, 7]),
    "text": (pa.string(), ["", "a'b", "ü" * 80]),
    "binary": (pa.binary(), [b"", b"\x00\xff", b"\x00"]),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2026, 11, 15)]),
    "time": (pa.timestamp("us"), [MOMENT, MOMENT - dt.timedelta(days=40_000)]),
    "instant": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=dt.UTC)]),
    "decimal": (pa.decimal128(10, 2), [Decimal("-1.25"), Decimal("3.00")]),
    "wide decimal": (pa.decimal128(38, 3), [Decimal("12345678901234567890123.125"), Decimal("-1.000")]),
    "boolean": (pa.bool_(), [True, False]),
}


@pytest.mark.parametrize("decoded_bytes_max", [0, 2**20], ids=["by a query", "by decoding"])
@pytest.mark.parametrize("name", KEYS)
def test_get_finds_a_key_of_any_type(
    lake: Lake, name: str, decoded_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_row, "DECODED_BYTES_MAX", decoded_bytes_max)
    kind, values = KEYS[name]
    table = lake.create_table(
        "a.t", pa.schema([("k", kind), ("n", pa.int64()), ("list", pa.list_(pa.string()))]), key="k"
    )
    rows = [{"k": value, "n": number, "list": ["x", None]} for number, value in enumerate(values[1:])]
    table.upsert(rows or [{"k": values[0], "n": 0, "list": None}])
    table.fold()

    assert [table.get(row["k"]) for row in rows] == rows
    assert table.get(values[0]) == (None if rows else {"k": values[0], "n": 0, "list": None})


@pytest.mark.parametrize("decoded_bytes_max", [0, 2**20], ids=["by a query", "by decoding"])
def test_get_by_several_columns_some_of_which_only_the_log_has(
    folder: Path, lake: Lake, decoded_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_row, "DECODED_BYTES_MAX", decoded_bytes_max)
    data = pa.table({"id": [1, 2, 1], "p": ["a b*", "a b*", "50%"], "v": ["x", "y", "z"]})
    write_deltalake(folder / "d", data, partition_by=["p"])
    table = lake.adopt("a.adopted", folder / "d", key=["p", "id"])

    assert table.get({"p": "50%", "id": 1}) == {"id": 1, "p": "50%", "v": "z"}
    assert table.get({"p": "a b*", "id": 2}) == {"id": 2, "p": "a b*", "v": "y"}
    assert table.get({"p": "50%", "id": 2}) is None


def test_get_names_a_damaged_file(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_row, "DECODED_BYTES_MAX", 0)
    file = min(table.snapshot().base, key=lambda file: file.bound("id").low)
    assert table.get(10) is not None
    spoil(table.base_path / file.path)

    with pytest.raises(Corruption, match=Path(file.path).name):
        table.get(11)


def test_bloom_filters_spare_the_read_of_row_groups(lake: Lake) -> None:
    """Keys are scattered, so that their ranges tell nothing."""
    table = lake.create_table("a.t", pa.schema([("k", pa.string()), ("n", pa.int64())]), key="k")
    keys = [hashlib.md5(str(number).encode()).hexdigest() for number in range(20_000)]
    table.upsert(pa.table({"k": keys, "n": range(len(keys))}))
    table.fold()
    table.optimize(by=["n"])

    found = report(table, Compare("k", "=", keys[7_000]))
    absent = report(table, Compare("k", "=", hashlib.md5(b"none").hexdigest()))

    assert found.groups_total == absent.groups_total == 20
    assert 1 <= found.groups_read <= 4  # one in a hundred filters is wrong
    assert absent.groups_read <= 3
    assert [table.get(key) for key in keys[:3]] == [{"k": key, "n": number} for number, key in enumerate(keys[:3])]


# -- answers without reading


def test_the_index_alone_tells_counts_and_bounds(table: Table, expected: list[dict[str, Any]]) -> None:
    summary = table._internals.opened.planned().summary()

    assert summary is not None
    assert summary.rows == len(expected)
    assert summary.bounds("id") == (0, FILES * FILE_ROWS - 1)
    assert summary.bounds("v") == (expected[0]["v"], expected[-1]["v"])
    assert summary.nulls("x") == sum(row["x"] is None for row in expected)
    assert summary.bounds("x") is None  # a NaN would be the greatest, and no bound tells of one
    assert summary.bounds("nothing") is None


def test_a_damaged_index_alone_tells_nothing_wrong(folder: Path, lake: Lake, table: Table) -> None:
    lake.close()
    path = index_path(folder / "lake")
    whole = path.read_bytes()
    for offset in range(64, len(whole), 97):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 0xFF]) + whole[offset + 1 :])
        with Lake(folder / "lake", settings=SETTINGS) as other:
            summary = other.table("a.t")._internals.opened.planned().summary()
            if summary is not None:
                assert summary.rows == FILES * FILE_ROWS
                assert summary.bounds("id") in (None, (0, FILES * FILE_ROWS - 1))
                assert summary.nulls("v") in (None, 0)


def test_with_pending_changes_the_index_alone_tells_nothing(table: Table) -> None:
    table.delete([1])

    assert table._internals.opened.planned().summary() is None


def test_files_say_which_columns_have_no_nan(folder: Path, lake: Lake) -> None:
    table = lake.create_table(
        "a.t", pa.schema([("id", pa.int64()), ("x", pa.float64()), ("y", pa.float32())]), key="id"
    )
    table.upsert([{"id": 1, "x": 1.5, "y": 2.0}, {"id": 2, "x": float("nan"), "y": None}])
    table.fold()

    (file,) = table.snapshot().base
    assert pq.read_metadata(table.base_path / file.path).metadata[NAN_FREE.encode()] == b'["y"]'
    assert report(table, Compare("x", ">", 5.0)).files_read == 1
    assert report(table, Compare("y", ">", 5.0)).files_read == 0


# -- tools


def spoil(path: Path) -> None:
    """A file whose size is right and whose end is not."""
    path.write_bytes(path.read_bytes()[:-4] + b"????")


def test_a_build_names_the_file_it_stopped_at(table: Table, folder: Path) -> None:
    index_path(folder / "lake").unlink()
    spoiled = table.base_path / table.snapshot().base[2].path
    spoil(spoiled)

    with pytest.raises(Corruption, match=spoiled.name):
        table.build_index()
    built = table.build_index(skip_corrupt=True)

    assert built.skipped == (str(spoiled),)
    assert built.files == FILES
    assert table.check_index().missing == (str(spoiled),)


def test_a_build_goes_on_where_it_was_interrupted(
    folder: Path, lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.close()
    index_path(folder / "lake").unlink()
    monkeypatch.setattr(rebuild, "BATCH_FILES", 1)
    store = FaultyStore("index.batch", disk_full, nth=3)
    with Lake(folder / "lake", settings=SETTINGS, store=store) as full, pytest.raises(OSError, match="No space"):
        full.table("a.t").build_index()
    with Lake(folder / "lake", settings=SETTINGS) as again:
        built = again.table("a.t").build_index()

        assert built.added == FILES - 3
        assert again.table("a.t").check_index().ok


def test_a_large_build_is_left_to_tasks(table: Table, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_path(folder / "lake").unlink()
    monkeypatch.setattr(rebuild, "SPARK_FILES_MIN", 1)
    monkeypatch.setattr(rebuild, "WAVE_FILES", 3)
    monkeypatch.setattr(rebuild, "BATCH_FILES", 2)
    tasks: list[int] = []

    class Elsewhere(HereCompute):
        def run(self, function: Any, given: Any) -> Any:
            tasks.append(len(given))
            return pickle.loads(pickle.dumps(super().run(function, pickle.loads(pickle.dumps(given)))))

    object.__setattr__(table._internals.runtime, "compute", Elsewhere())
    built = table.build_index()

    assert tasks == [2, 1]
    assert built.added == FILES
    assert table.check_index().ok


def test_a_check_finds_entries_that_are_not_what_the_file_says(table: Table) -> None:
    index, snapshot = index_of(table), table.snapshot()
    first, second, *others = snapshot.base
    wrong = footer_of(read_footer(index.data / first.path), "a footer")
    right, _ = table_index.read_entries(index.data, [first])
    entries = [*right, entry_of(wrong, second.path, second.size_bytes), entry_of(wrong, "gone.parquet", 5)]
    create_index(
        table._internals.runtime.store, index.path, table._internals.incarnation, snapshot.base_version, entries
    )

    found = table.check_index()

    assert not found.ok
    assert found.different == (str(index.data / second.path),)
    assert found.extra == (str(index.data / "gone.parquet"),)
    assert found.missing == tuple(str(index.data / file.path) for file in others)


def test_the_index_can_be_kept_in_a_folder_of_its_own(folder: Path) -> None:
    settings = Settings(row_group_rows=1024, index_folder=folder / "local")
    with Lake(folder / "lake", settings=settings) as lake:
        table = indexed.create(lake, files=2)
        assert not (folder / "lake" / "a" / "t" / "index").exists()
        assert (folder / "local" / table._internals.incarnation / "base.pm").exists()
        assert wrong_answers(table, rows_of(table)) == []

        lake.drop_table("a.t")

        assert list((folder / "local").iterdir()) == []


def test_inspect_tells_what_there_is(table: Table) -> None:
    facts = table.inspect_index()

    assert facts.base is not None
    assert (facts.base.files, facts.base.groups, facts.base.versions[0]) == (FILES, 3 * FILES, FILES)
    assert ("v", "text") in facts.base.columns
    assert facts.base.bytes > facts.base.dead_bytes
    assert facts.changes is None


def test_an_unreadable_file_is_named_by_whoever_reads_it(folder: Path, lake: Lake, table: Table) -> None:
    lake.close()
    index_path(folder / "lake").unlink()
    spoiled = Path(f"{folder}/lake/a/t/base") / table_paths(folder)[1]
    spoil(spoiled)
    with Lake(folder / "lake", settings=SETTINGS) as again:
        table = again.table("a.t")
        assert report(table, Compare("id", "=", 10)).files_unknown == 1
        assert table.get(10) == {"id": 10, "v": "row 000010", "x": 10 / FILE_ROWS}
        with pytest.raises(Corruption, match=spoiled.name):
            table.get(FILE_ROWS + 10)


def table_paths(folder: Path) -> list[str]:
    with Lake(folder / "lake", settings=SETTINGS) as lake:
        return [file.path for file in sorted(lake.table("a.t").snapshot().base, key=lambda file: file.bound("id").low)]
