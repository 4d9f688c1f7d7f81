"""Every version of a table stays readable after an erasure, as if the rows had never been there."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import Conflict, Lake, NotFound, Table
from lithify.files.local import LocalStorage
from support.delta_scan import delta_scan, installed
from support.erasures import COLUMNS, NEW, OLD, SETTINGS, base_versions, others, places_of, told, wanda
from support.fetched import NotHere
from support.waiting import eventually

NEEDLES = (NEW, OLD, "Wanda")


def left(lake: Lake) -> list[str]:
    return places_of(Path(lake.path), *NEEDLES)


def logs(lake: Lake) -> list[Path]:
    return sorted(path for path in Path(lake.path).rglob("*") if "_delta_log" in path.parts and path.is_file())


def unknown(lake: Lake) -> None:
    """Nobody knows of who has opened the lake last, so nobody asks it for anything."""
    files = list((Path(lake.path) / "_lithify/processes").iterdir())
    assert len(files) == 2
    max(files, key=lambda path: path.stat().st_mtime_ns).unlink()


def ids(rows: pa.Table) -> list[int]:
    return sorted(rows["id"].to_pylist())


# -- what other engines make of a log on its way


def test_a_commit_that_removes_an_unknown_file_is_nothing_to_other_readers(folder: Path) -> None:
    """What all of it stands on."""
    path = folder / "table"
    for number in range(3):
        write_deltalake(path, pa.table({"id": [number]}), mode="overwrite")
    before = base_versions(path)
    for commit in sorted((path / "_delta_log").glob("*.json"))[1:]:
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        (remove,) = [action["remove"] for action in actions if "remove" in action]
        actions.append({"remove": {**remove, "path": "nobody-knows.parquet"}})
        commit.write_text("\n".join(map(json.dumps, actions)))
    assert base_versions(path) == before


def by_duckdb(table: Path, aside: Path) -> dict[int, list[int]]:
    """The ids of each version as its extension reads them: it is given the log up to there."""
    try:
        installed()
    except NotHere as error:
        pytest.skip(str(error))
    found = {}
    for version in range(DeltaTable(str(table)).version() + 1):
        copy = aside / str(version)
        shutil.copytree(table, copy, copy_function=os.link)
        for file in (copy / "_delta_log").iterdir():
            if file.name == "_last_checkpoint" or (file.name[:20].isdigit() and int(file.name[:20]) > version):
                file.unlink()
        found[version] = ids(delta_scan(copy, columns="id")) if DeltaTable(str(copy)).file_uris() else []
    return found


def test_the_same_for_duckdbs_own_reader(folder: Path) -> None:
    path = folder / "table"
    for number in range(3):
        write_deltalake(path, pa.table({"id": [number]}), mode="overwrite")
    commit = path / "_delta_log/00000000000000000002.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    (remove,) = [action["remove"] for action in actions if "remove" in action]
    commit.write_text("\n".join(map(json.dumps, [*actions, {"remove": {**remove, "path": "nobody-knows.parquet"}}])))
    assert by_duckdb(path, folder / "aside") == {0: [0], 1: [1], 2: [2]}


# -- every version


def test_every_version_stays_and_no_file_shows_her(lake: Lake, customers: Table) -> None:
    DeltaTable(str(customers.base_path)).create_checkpoint()
    for number in range(50, 75):
        customers.upsert([{"id": number, "name": "x", "mail": f"{number}@example.org", "n": number}])
        if number % 6 == 0:
            customers.fold()
    seq = customers.snapshot().seq
    before, versions = told(customers, seq, 42), base_versions(Path(customers.base_path))
    assert len(left(lake)) > 5  # or nothing is shown here
    assert any(".checkpoint" in path for path in left(lake))

    erasure = lake.erase("shop.customers", keys=[42]).wait()

    assert erasure.state == "done", (erasure.places, erasure.problems)
    assert left(lake) == []
    assert told(customers, seq) == before
    after = base_versions(Path(customers.base_path))
    assert {v: after[v] for v in versions} == {v: [r for r in rows if r["id"] != 42] for v, rows in versions.items()}
    assert (erasure.receipt or {})["rounds"] == 1


def test_duckdb_reads_every_version_by_itself(lake: Lake, customers: Table, folder: Path) -> None:
    customers.fold()
    DeltaTable(str(customers.base_path)).create_checkpoint()
    before = {
        version: [row["id"] for row in rows if row["id"] != 42]
        for version, rows in base_versions(Path(customers.base_path)).items()
    }
    assert lake.erase("shop.customers", keys=[42]).wait().state == "done"
    found = by_duckdb(Path(customers.base_path), folder / "aside")
    assert {version: found[version] for version in before} == {v: sorted(rows) for v, rows in before.items()}


def test_twice_is_safe_and_another_key_goes_later(lake: Lake, customers: Table) -> None:
    seq = customers.snapshot().seq
    before = told(customers, seq, 42, 11)
    erasures = [lake.erase("shop.customers", keys=[key]).wait() for key in (42, 42, 11)]
    assert [erasure.state for erasure in erasures] == ["done"] * 3
    assert told(customers, seq) == before
    assert places_of(Path(lake.path), *NEEDLES, "user11@") == []
    assert all(erasure.verify().ok for erasure in erasures)
    rewritten = [(erasure.receipt or {})["done"]["files_rewritten"] for erasure in erasures]
    assert rewritten[1] == 1  # the delete that hid her once more


def test_a_key_that_never_was_changes_nothing_of_the_past(lake: Lake, customers: Table) -> None:
    seq = customers.snapshot().seq
    before, size = told(customers, seq), {path: path.stat().st_ino for path in logs(lake)}
    receipt = lake.erase("shop.customers", keys=[4711]).wait().receipt
    assert receipt is not None
    assert (receipt["history"], receipt["done"]["files_rewritten"]) == ("rewrite", 1)  # its delete
    assert told(customers, seq) == before
    changed = [path for path, inode in size.items() if path.stat().st_ino != inode]
    assert [path.name for path in changed if path.suffix == ".json"] == []


def test_the_receipt_says_what_was_written_anew_and_a_dry_run_says_it_before(lake: Lake, customers: Table) -> None:
    plan = lake.erase("shop.customers", keys=[42], dry_run=True)
    assert (plan.files_to_rewrite, plan.blocked_by) == (2, ())
    assert plan.bytes_to_rewrite > 0
    assert lake.erasures() == []
    receipt = lake.erase("shop.customers", keys=[42]).wait().receipt
    assert receipt is not None
    done = receipt["done"]
    assert done["files_rewritten"] == 2 + 1  # the delete that hid her
    assert plan.bytes_to_rewrite < done["bytes_rewritten"] < 2 * plan.bytes_to_rewrite
    assert done["commits_rewritten"] > 0
    assert done["commits_deleted"] == 0
    cut = lake.erase("shop.customers", keys=[1], history="cut", dry_run=True)
    assert (cut.files_to_rewrite, cut.bytes_to_rewrite) == (0, 0)


# -- the files


def test_a_new_file_is_written_as_the_old_one_was(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("user_id", pa.string()), ("x", pa.float64())])
    table = lake.create_table("a.big", columns, key="id")
    table.upsert([{"id": i, "user_id": f"user-{i}", "x": float(i)} for i in range(10_000)])
    table.fold()
    (old,) = DeltaTable(str(table.base_path)).file_uris()
    before, seq = pq.ParquetFile(old), table.snapshot().seq
    (add,) = adds_of(Path(table.base_path), 1)
    lake.erase("a.big", keys=[777]).wait()
    (new,) = DeltaTable(str(table.base_path), version=1).file_uris()
    after = pq.ParquetFile(new)
    assert new != old
    assert table.count(as_of=seq) == 9_999
    assert after.read()["id"].to_pylist() == [i for i in range(10_000) if i != 777]
    assert after.schema == before.schema
    assert (after.metadata.metadata or {}).keys() == (before.metadata.metadata or {}).keys()
    assert [shape(after, c) for c in range(3)] == [shape(before, c) for c in range(3)]
    (told_now,) = adds_of(Path(table.base_path), 1)
    assert {**add, "path": 0, "size": 0, "stats": 0} == {**told_now, "path": 0, "size": 0, "stats": 0}
    assert told_now["size"] == Path(new).stat().st_size
    stats = [json.loads(said["stats"]) for said in (add, told_now)]
    assert stats[1] == {**stats[0], "numRecords": 9_999}


def shape(file: pq.ParquetFile, column: int) -> tuple[Any, ...]:
    told = file.metadata.row_group(0).column(column)
    return told.compression, told.encodings, told.has_offset_index, told.has_column_index, told.is_stats_set


def adds_of(table: Path, version: int) -> list[dict[str, Any]]:
    lines = (table / f"_delta_log/{version:020d}.json").read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def test_a_file_that_base_and_changes_share_is_written_once(lake: Lake) -> None:
    table = lake.create_table("shop.customers", COLUMNS, key="id")
    table.upsert([*others(), *wanda()])
    table.fold()  # a first load is linked
    folder = Path(table.base_path).parent
    old = [path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert {path.stat().st_nlink for path in old} == {2}
    receipt = lake.erase("shop.customers", keys=[42]).wait().receipt
    assert receipt is not None
    new = [p for log in ("base", "changes") for p in (folder / log).rglob("*.parquet") if p.stat().st_nlink == 2]
    assert len(new) == 2
    assert len({path.stat().st_ino for path in new}) == 1
    assert receipt["done"]["files_rewritten"] == 2  # the load, and the delete that hid her


def test_times_of_the_log_stay(lake: Lake, customers: Table) -> None:
    """Retention goes by them."""
    before = {path: path.stat().st_mtime_ns for path in logs(lake) if path.suffix == ".json"}
    lake.erase("shop.customers", keys=[42]).wait()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_files_of_a_version_are_vacuumed_when_their_time_comes(lake: Lake, customers: Table) -> None:
    lake.erase("shop.customers", keys=[42]).wait()
    removed = [path for path in Path(customers.base_path).parent.rglob("*.parquet") if "_delta_log" not in path.parts]
    for path in [*removed, *logs(lake)]:
        os.utime(path, (1, 1))
    report = customers.vacuum(retain_hours=1, dry_run=False)
    assert report.files > 0
    assert report.orphans == 0
    assert customers.count() == 38


# -- where values stand in the past


def test_free_texts_that_name_her_are_blanked_and_others_stay(lake: Lake, customers: Table) -> None:
    customers.delete_where("n = 39", reason="as agreed")
    customers.delete_where("n = 38", reason="Wanda Needleman called")
    customers.delete_where("id = 42")
    lake.erase("shop.customers", keys=[42]).wait()
    said = [text for entry in customers.history() for text in (entry.reason, entry.detail) if text]
    assert left(lake) == []
    assert "as agreed" in said
    assert "n = 39" in said
    assert not any("42" in text or "Wanda" in text for text in said if "erasure" not in text)


def test_bounds_of_files_that_vacuum_has_taken_go_and_their_versions_stay_unreadable(
    lake: Lake, customers: Table
) -> None:
    seq = customers.snapshot().seq
    customers.fold()
    for path in Path(lake.path).rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    assert customers.vacuum(retain_hours=1, dry_run=False).files > 0
    assert any("_delta_log" in path for path in left(lake))
    erasure = lake.erase("shop.customers", keys=[42]).wait()
    assert erasure.state == "done", erasure.places
    assert left(lake) == []
    with pytest.raises(NotFound):
        customers.to_arrow(as_of=seq - 2)


def test_a_partition_that_was_hers_alone(lake: Lake) -> None:
    """Its name is one of her values: with the only row of it the file goes, and all that names it."""
    columns = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("mail", pa.string())])
    table = lake.create_table("a.days", columns, key="id", time="day")
    hers, day = dt.date(1999, 4, 1), dt.date(2026, 11, 15)
    table.upsert([{"id": 1, "day": day, "mail": "one@example.org"}, {"id": 42, "day": hers, "mail": NEW}])
    table.fold()
    table.optimize()
    seq = table.snapshot().seq
    shown = places_of(Path(lake.path), "1999-04-01")
    erasure = lake.erase("a.days", keys=[42]).wait()
    assert shown
    assert erasure.state == "done", erasure.places
    assert places_of(Path(lake.path), "1999-04-01", NEW) == []
    assert ids(table.to_arrow(as_of=seq)) == [1]
    assert [row["id"] for row in base_versions(Path(table.base_path))[1]] == [1]
    assert (erasure.receipt or {})["rounds"] == 1


def test_deletes_that_a_table_with_an_order_remembers(lake: Lake) -> None:
    """They stay in the log after their fold, so that no late event comes in."""
    columns = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("mail", pa.string())])
    table = lake.create_table("a.ordered", columns, key="id", order_by="at")
    table.upsert([{"id": i, "at": 10, "mail": f"{i}@example.org"} for i in range(5)])
    table.upsert([{"id": 42, "at": 1_234_567, "mail": NEW}])
    table.delete([42, 3], at=2_345_678)
    table.fold()
    assert len(table.snapshot().remembered) == 1
    erasure = lake.erase("a.ordered", keys=[42]).wait()
    assert erasure.state == "done", erasure.places
    assert places_of(Path(lake.path), "1234567", NEW) == []
    table.upsert([{"id": 3, "at": 11, "mail": "late@example.org"}])  # the other delete is remembered still
    assert table.get(3) is None
    table.fold()
    assert ids(table.to_arrow()) == [0, 1, 2, 4]


def test_columns_that_changed_since(lake: Lake, customers: Table) -> None:
    customers.rename_column("mail", "address")
    customers.alter_column("n", type="int64")
    customers.upsert([{"id": 42, "name": "Wanda", "address": "wanda.newest@example.org", "n": 88888}])
    customers.drop_column("name")
    customers.fold()
    seq = customers.snapshot().seq
    before, versions = told(customers, seq, 42), base_versions(Path(customers.base_path))
    erasure = lake.erase("shop.customers", keys=[42]).wait()
    assert erasure.state == "done", (erasure.places, erasure.problems)
    assert told(customers, seq) == before
    after = base_versions(Path(customers.base_path))
    assert {v: after[v] for v in versions} == {v: [r for r in rows if r["id"] != 42] for v, rows in versions.items()}
    assert places_of(Path(lake.path), *NEEDLES, "wanda.newest") == []


def test_commits_in_the_archive(lake: Lake, customers: Table) -> None:
    from lithify.delta import archive, changes

    customers.set_options({"checkpoint_every": 2})
    for number in range(50, 66):
        customers.upsert([{"id": number, "name": "x", "mail": f"{number}@example.org", "n": number}])
    from lithify.lake.internals import internals

    log = internals(lake).table("shop.customers").handles.changes.log
    limits = log.limits
    log.limits = lambda: archive.LogLimits(2, 168, 10_000, live_commits_min=2, live_commits_max=4)
    eventually(lambda: log.trim_if_due().archived > 0 or (Path(log.path) / "_log_archive").exists())
    log.limits = limits
    assert any("_log_archive" in path for path in left(lake))
    assert changes.LIVE_COMMITS_MIN > 2
    seq = customers.snapshot().seq
    before = told(customers, seq, 42)
    assert lake.erase("shop.customers", keys=[42]).wait().state == "done"
    assert told(customers, seq) == before
    assert left(lake) == []


# -- pins and tags


def test_a_tag_is_rewritten_too(lake: Lake, customers: Table) -> None:
    customers.tag("audit")
    customers.fold()
    before = ids(customers.to_arrow(as_of="audit"))
    erasure = lake.erase("shop.customers", keys=[42]).wait()
    assert erasure.state == "done", erasure.places
    assert left(lake) == []
    assert ids(customers.to_arrow(as_of="audit")) == [id for id in before if id != 42]
    for path in Path(lake.path).rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    customers.vacuum(retain_hours=1, dry_run=False)  # which spares what the tag names now
    assert ids(customers.to_arrow(as_of="audit")) == [id for id in before if id != 42]


def test_a_pin_of_a_version_with_her_holds_it_up_and_may_be_broken(lake: Lake, customers: Table) -> None:
    with customers.pin():
        held = lake.erase("shop.customers", keys=[42]).wait()
        assert held.state == "blocked"
        assert "a pin of seq" in held.blocked_by[0]
        assert customers.get(42) is None
        held.cancel()
        customers.tag("audit", as_of=0)
        broken = lake.erase("shop.customers", keys=[42], break_pins=True).wait()
        assert broken.state == "done"
    assert [tag.name for tag in customers.tags()] == ["audit"]
    assert left(lake) == []


def test_a_pin_of_a_version_without_her_does_not(lake: Lake, customers: Table) -> None:
    customers.delete([42])
    customers.fold()
    with customers.pin():
        assert lake.erase("shop.customers", keys=[42]).wait().state == "done"


# -- what goes on meanwhile


def test_what_is_inserted_afterwards_stays_in_all_versions(lake: Lake, customers: Table) -> None:
    """E8, also where it is gone again by the end."""
    seq = customers.snapshot().seq
    before = told(customers, seq, 42)
    erasure = lake.erase("shop.customers", keys=[42])
    customers.upsert(wanda("wanda.again@example.org"))
    again = customers.snapshot().seq
    customers.fold()
    customers.delete([42])
    assert erasure.wait().state == "done", (erasure.places, erasure.problems)
    assert erasure.receipt is not None
    assert erasure.receipt["present_again"] == 1
    assert told(customers, seq) == before
    assert [row["mail"] for row in customers.to_arrow(as_of=again).to_pylist() if row["id"] == 42] == [
        "wanda.again@example.org"
    ]
    assert 42 not in ids(customers.to_arrow())
    assert places_of(Path(lake.path), NEW, OLD) == []


def test_a_delete_that_came_later_goes_with_her(lake: Lake, customers: Table) -> None:
    erasure = lake.erase("shop.customers", keys=[42])
    customers.delete([42, 9])
    seq = customers.snapshot().seq
    assert erasure.wait().state == "done", (erasure.places, erasure.problems)
    assert 9 not in ids(customers.to_arrow(as_of=seq))
    assert [row["id"] for row in customers.changes(since=seq - 1).to_pylist()] == [9]


def test_others_write_fold_and_compact_meanwhile(lake: Lake, customers: Table) -> None:
    seq = customers.snapshot().seq
    before, ended, written = told(customers, seq, 42), threading.Event(), list[int]()

    def work() -> None:
        with Lake(lake.path, settings=SETTINGS.model_copy(update={"checkpoint_every": 3})) as other:
            table = other.table("shop.customers")
            for id in itertools.count(1000):
                if ended.wait(0.05):
                    return
                table.upsert([{"id": id, "name": "x", "mail": f"{id}@example.org", "n": id}])
                written.append(id)
                if id % 3 == 0:
                    table.fold()
                if id % 10 == 0:
                    table.optimize()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        eventually(lambda: len(written) > 3)
        erasure = lake.erase("shop.customers", keys=[42]).wait()
    finally:
        ended.set()
        worker.join()
    assert erasure.state == "done", (erasure.places, erasure.problems)
    assert told(customers, seq) == before
    assert [id for id in ids(customers.to_arrow()) if id >= 1000] == written
    assert left(lake) == []
    customers.fold()
    assert ids(DeltaTable(str(customers.base_path)).to_pyarrow_table()) == ids(customers.to_arrow())


def test_who_had_the_table_open_goes_on(lake: Lake, customers: Table) -> None:
    seq = customers.snapshot().seq
    path = str(customers.base_path)
    theirs, polars_frame = DeltaTable(path), polars.scan_delta(path)
    assert 42 in ids(theirs.to_pyarrow_table())
    with Lake(lake.path, settings=SETTINGS) as other:
        held = other.table("shop.customers")
        assert held.get(42) is not None
        assert 42 in ids(held.to_arrow(as_of=seq))
        customers.fold()
        assert lake.erase("shop.customers", keys=[42]).wait().state == "done"
        assert 42 not in ids(held.to_arrow(as_of=seq))
        held.upsert([{"id": 99, "name": "x", "mail": "99@example.org", "n": 1}])
        held.fold()
    theirs.update_incremental()
    assert ids(theirs.to_pyarrow_table()) == ids(customers.to_arrow())
    assert polars_frame is not None


def test_who_sleeps_meanwhile_follows_from_the_old_files(lake: Lake, customers: Table) -> None:
    """A handle that has them in memory reads commits that remove both: nothing of them comes back."""
    from lithify.lake.internals import internals

    path = str(customers.base_path)
    theirs = DeltaTable(path)
    sleeping = Lake(lake.path, settings=SETTINGS.model_copy(update={"refresh_s": 600}))
    handles = internals(sleeping).table("shop.customers").handles
    known = {file.path for file in handles.snapshot().base}
    unknown(lake)
    customers.fold()
    assert lake.erase("shop.customers", keys=[42]).wait().state == "done"
    now = {file.path for file in handles.snapshot().base}
    assert now.isdisjoint(known) or now != known
    assert ids(sleeping.table("shop.customers").to_arrow()) == ids(customers.to_arrow())
    sleeping.close()
    theirs.update_incremental()
    assert ids(theirs.to_pyarrow_table()) == ids(customers.to_arrow())


def test_rows_in_the_memory_of_who_sleeps_meanwhile_do_not_come_back(lake: Lake, customers: Table) -> None:
    """E1: it brings them up to date by what was written since, and the delete is not told any more."""
    sleeping = Lake(lake.path, settings=SETTINGS.model_copy(update={"refresh_s": 600}))
    sleeping.cache.pin("shop.customers")
    query = "select count(*) as n from shop.customers where id = 42"
    assert sleeping.sql(query).to_pylist() == [{"n": 1}]
    unknown(lake)
    assert lake.erase("shop.customers", keys=[42]).wait().state == "done"
    customers.upsert([{"id": 60, "name": "x", "mail": "60@example.org", "n": 1}])
    assert sleeping.sql(query).to_pylist() == [{"n": 0}]
    assert sleeping.table("shop.customers").get(42) is None
    assert sleeping.table("shop.customers").get(60) is not None
    sleeping.close()


@pytest.mark.parametrize("moment", ["rewrite.named", "erase.before-purge", "erase.vacuumed"])
def test_a_checkpoint_that_comes_late_is_found(lake: Lake, customers: Table, moment: str) -> None:
    """Another process had read the log before, and writes what it knew."""
    customers.fold()
    log = Path(customers.base_path) / "_delta_log"
    aside = Path(lake.path).parent / "aside"
    shutil.copytree(Path(customers.base_path), aside)
    DeltaTable(str(aside), version=1).create_checkpoint()
    late = aside / "_delta_log/00000000000000000001.checkpoint.parquet"
    before = base_versions(Path(customers.base_path))
    put = []

    class Late(LocalStorage):
        def step(self, name: str) -> None:
            if name == moment and not put:
                put.append(shutil.copy(late, log / late.name))

    with Lake(lake.path, settings=SETTINGS, store=Late()) as other:
        erasure = other.erase("shop.customers", keys=[42]).wait()
    assert put
    assert erasure.state == "done", erasure.places
    assert left(lake) == []
    after = base_versions(Path(customers.base_path))
    assert {v: after[v] for v in before} == {v: [r for r in rows if r["id"] != 42] for v, rows in before.items()}


def test_what_another_writer_has_put_into_the_log_is_refused_by_name(lake: Lake, customers: Table) -> None:
    seq = customers.snapshot().seq
    name = "00000000000000000000.00000000000000000001.compacted.json"
    (Path(customers.base_path) / "_delta_log" / name).write_text("{}")
    with pytest.raises(Conflict, match=name):
        lake.erase("shop.customers", keys=[42])
    assert (customers.snapshot().seq, lake.erasures()) == (seq, [])


def test_no_value_is_written_in_clear_on_the_way(lake: Lake, customers: Table) -> None:
    """E6: what is put in place of a commit shows nothing of her, after the first pass as after the second."""
    shown = []

    class Watching(LocalStorage):
        def replace(self, path: Any, data: Any) -> None:
            shown.append((path.name, any(needle.encode() in bytes(data) for needle in NEEDLES)))
            super().replace(path, data)

    with Lake(lake.path, settings=SETTINGS, store=Watching()) as other:
        assert other.erase("shop.customers", keys=[42]).wait().state == "done"
    assert len(shown) > 4
    assert [name for name, is_shown in shown if is_shown] == []
