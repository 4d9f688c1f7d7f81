"""Tables with merge rules: what is written counts by them, once, whatever repeats, crashes or folds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import CommitUnknown, Conflict, InvalidRequest, Lake, Settings, Table
from lithify.core.schema import FORMAT_PROPERTY
from lithify.files.local import LocalStorage
from lithify.maintenance.merge_changes import ChangeMerger
from lithify.maintenance.plans import MinorPlan
from lithify.maintenance.table_maintenance import TableMaintenance
from lithify.maintenance.triggers import minor_due
from lithify.streams.apply import Checkpoint, apply_batch
from support.faults import FaultyStore, disk_full
from support.leftovers import unsettled
from support.moments import moments

COLUMNS = pa.schema(
    [
        ("page", pa.string()),
        ("title", pa.string()),
        ("views", pa.int64()),
        ("spent", pa.decimal128(38, 2)),
        ("rows", pa.int64()),
        ("seen", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("paid", pa.bool_()),
    ]
)
RULES = {
    "views": "sum",
    "spent": "sum",
    "rows": "count",
    "tags": "append(3)",
    "seen": "max",
    "paid": "or",
    "title": "last_non_null",
}


@pytest.fixture(params=[20_000_000, 1], ids=["merged in memory", "merged by the engine"])
def lake(folder: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    with Lake(folder / "lake", settings=Settings(resolve_rows_max=request.param)) as opened:
        yield opened


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("web.pages", COLUMNS, key="page", merge_rules=RULES)


def shown(table: Table, *names: str) -> list[tuple[Any, ...]]:
    rows = sorted(table.to_arrow().to_pylist(), key=lambda row: row["page"])
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize("folded", [False, True], ids=["pending", "folded"])
def test_each_column_becomes_what_its_rule_makes_of_the_rows(table: Table, folded: bool) -> None:
    table.upsert(
        [
            {"page": "a", "views": 2, "spent": Decimal("0.10"), "tags": ["x", "y"], "paid": False, "title": "A"},
            {"page": "a", "views": 3, "tags": ["z"], "title": None},
            {"page": "b", "views": None, "paid": None},
        ]
    )
    if folded:
        table.fold()
    table.upsert([{"page": "a", "views": -1, "spent": Decimal("0.20"), "tags": ["w"], "paid": True}])
    table.update([{"page": "a"}, {"page": "b", "views": 7}])

    expected = [
        ("a", "A", 4, Decimal("0.30"), 4, ["y", "z", "w"], True),
        ("b", None, 7, None, 2, None, None),
    ]
    names = ("page", "title", "views", "spent", "rows", "tags", "paid")
    assert shown(table, *names) == expected
    table.fold()
    assert shown(table, *names) == expected
    assert table.get("b")["views"] == 7  # type: ignore[index]


def test_a_replace_a_delete_and_sql_set_what_stands_there(lake: Lake, table: Table) -> None:
    table.upsert([{"page": "a", "views": 5}, {"page": "b", "views": 5}, {"page": "c", "views": 5}])
    table.replace([{"page": "a", "views": 100, "rows": 7}], missing="null")
    table.delete(["b"])
    table.upsert([{"page": "a", "views": 1}, {"page": "b", "views": 1}])
    assert shown(table, "page", "views", "rows") == [("a", 101, 8), ("b", 1, 1), ("c", 5, 1)]

    lake.execute("update web.pages set views = views + 10 where page = 'a'")
    assert shown(table, "page", "views", "rows") == [("a", 111, 8), ("b", 1, 1), ("c", 5, 1)]
    lake.execute(
        "merge into web.pages t using (values ('a', 3), ('d', 4)) s(page, views) on t.page = s.page "
        "when matched then update set views = s.views "
        "when not matched then insert (page, views) values (s.page, s.views)"
    )
    assert shown(table, "page", "views", "rows") == [("a", 3, 8), ("b", 1, 1), ("c", 5, 1), ("d", 4, None)]
    before = table.snapshot().seq
    table.upsert([{"page": "a", "views": 1}])
    table.restore(before)
    table.upsert([{"page": "a", "views": 1}])
    assert shown(table, "page", "views", "rows")[0] == ("a", 4, 9)


def test_what_was_said_is_taken_back_from_sums_and_counts(table: Table) -> None:
    table.upsert([{"page": "a", "views": 5, "spent": Decimal("1.50"), "title": "A"}, {"page": "a", "views": 2}])
    table.fold()
    commit = table.retract([{"page": "a", "views": 5, "spent": Decimal("1.50")}], batch_id="back")
    assert (commit.operation, commit.rows) == ("retract", 1)
    assert table.retract([{"page": "a", "views": 5}], batch_id="back").replayed
    assert shown(table, "views", "spent", "rows", "title") == [(2, Decimal("0.00"), 1, "A")]
    with pytest.raises(InvalidRequest, match="column 'seen' cannot be taken back: its merge rule is 'max'"):
        table.retract([{"page": "a", "seen": None}])
    assert shown(table, "views") == [(2,)]


def test_a_plain_table_has_nothing_to_retract(lake: Lake) -> None:
    plain = lake.create_table("a.plain", COLUMNS, key="page")
    with pytest.raises(InvalidRequest, match="no column with the merge rule sum or count"):
        plain.retract([{"page": "a"}])
    keyless = lake.create_table("a.keyless", COLUMNS)
    with pytest.raises(InvalidRequest, match="no key"):
        keyless.retract([{"page": "a"}])


# -- once


def test_a_batch_that_is_sent_again_counts_once(table: Table) -> None:
    for _ in range(3):
        table.upsert([{"page": "a", "views": 5}], batch_id="one")
        table.update([{"page": "a", "views": 1}], batch_id="two")
    table.fold()
    table.upsert([{"page": "a", "views": 5}], batch_id="one")
    assert shown(table, "views", "rows") == [(6, 2)]


def test_writes_that_share_a_commit_all_count(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("web.pages", COLUMNS, key="page", merge_rules=RULES)
        with ThreadPoolExecutor(8) as threads:
            done = [threads.submit(table.upsert, [{"page": "a", "views": n}], f"batch {n % 30}") for n in range(60)]
        commits = [future.result() for future in done]
        counted = {commit.batch_id: n for n, commit in enumerate(commits) if not commit.replayed}
        assert len(counted) == 30
        assert shown(table, "rows", "views") == [(30, sum(counted.values()))]
        table.fold()
        assert shown(table, "rows", "views") == [(30, sum(counted.values()))]


def test_a_commit_of_unknown_outcome_counts_once_when_it_is_sent_again(folder: Path) -> None:
    class NoSync(FaultyStore):
        broken = False

        def step(self, name: str) -> None:
            super().step(name)
            if name == "write.committed" and not self.broken:
                self.broken = True
                disk_full()

    with Lake(folder / "lake") as lake:
        lake.create_table("web.pages", COLUMNS, key="page", merge_rules=RULES)
    with Lake(folder / "lake", store=NoSync("never", disk_full)) as lake:
        table = lake.table("web.pages")
        with pytest.raises(CommitUnknown):
            table.upsert([{"page": "a", "views": 5}], batch_id="one")
        assert table.upsert([{"page": "a", "views": 5}], batch_id="one").replayed
        assert shown(table, "views", "rows") == [(5, 1)]


def test_a_micro_batch_that_comes_again_counts_once(table: Table) -> None:
    counting = pa.table({"page": ["a", "a", "b", "a"], "views": [1, 2, 3, 4], "op": ["i", "u", "i", "u"]})
    deleting = pa.table({"page": ["b", "b", "a"], "views": [None, 9, 1], "op": ["d", "i", "i"]})
    for events, number in ((counting, 0), (counting, 0), (deleting, 1), (deleting, 1)):
        checkpoint = Checkpoint("stream.q", number, number - 1 if number else None)
        apply_batch(table._internals, events, checkpoint=checkpoint, mode="upsert", op_column="op")
    assert shown(table, "page", "views", "rows") == [("a", 8, 4), ("b", 9, 1)]


def count_and_fold(store: LocalStorage | None, path: str) -> None:
    """Writes and folds, each write known by its batch."""
    with Lake(path, store=store, settings=Settings(checkpoint_every=2)) as lake:
        table = lake.table("web.pages")
        for number in range(3):
            table.upsert([{"page": "a", "views": 10**number, "tags": [str(number)]}], batch_id=f"up {number}")
            if number:
                table.fold()


def test_a_kill_at_any_step_of_writes_and_folds_counts_nothing_twice(folder: Path) -> None:
    """Also for whoever reads between the two commits of a fold."""
    child = folder / "child"
    with Lake(child / "lake", create=True) as lake:
        lake.create_table("web.pages", COLUMNS, key="page", merge_rules=RULES)
    left = moments(count_and_fold, str(child / "lake"), folder=child, copies=folder / "left")
    assert len(left) > 10
    sums = {0: [], 1: [(1, 1, ["0"])], 2: [(11, 2, ["0", "1"])], 3: [(111, 3, ["0", "1", "2"])]}
    for moment in left:
        with Lake(moment.path / "lake") as lake:
            table = lake.table("web.pages")
            assert shown(table, "views", "rows", "tags") == sums[table.snapshot().seq], str(moment)
        count_and_fold(None, str(moment.path / "lake"))
        with Lake(moment.path / "lake") as lake:
            table = lake.table("web.pages")
            assert shown(table, "views", "rows", "tags") == sums[3], str(moment)
            assert unsettled(moment.path / "lake") == [], str(moment)
        shutil.rmtree(moment.path)


def test_change_files_of_a_table_with_rules_are_left_to_the_fold(table: Table) -> None:
    """One file with lines of both sides of a watermark would count those of one side twice."""
    table.set_options({"minor_files_min": 2})
    for _ in range(6):
        table.upsert([{"page": "a", "views": 1}])
    snapshot = table.snapshot()
    with table._internals.maintaining() as (handles, reader):
        policy = TableMaintenance(handles, reader).policy(snapshot)
        assert policy.minor_files_min == 2
        assert minor_due(snapshot, policy) is None
        plan = MinorPlan(table=table.name, files=snapshot.changes, why="", gain="", bytes_out=0)
        with pytest.raises(InvalidRequest, match="has merge rules: each of its changes counts once"):
            ChangeMerger(handles, reader).run(plan)
    assert shown(table, "views") == [(6,)]


def test_hot_rows_and_time_travel_count_each_write_once(folder: Path) -> None:
    with Lake(folder / "lake") as lake, Lake(folder / "lake") as other:
        table = lake.create_table("web.pages", COLUMNS, key="page", merge_rules=RULES)
        table.upsert([{"page": "a", "views": 1}])
        lake.cache.pin("web.pages")
        for number in range(1, 6):
            other.table("web.pages").upsert([{"page": "a", "views": 10**number}])
            if number in (2, 4):
                other.table("web.pages").fold()
            if number != 3:
                assert shown(table, "views") == [(int("1" * (number + 1)),)]
        stats = lake.cache.stats()
        assert (stats.tables[0].seq, stats.loads, stats.refreshes) == (6, 1, 4)
        for seq in range(1, 7):
            assert table.to_arrow(as_of=seq).column("views").to_pylist() == [int("1" * seq)]


def test_the_feed_shows_the_row_after_each_write(table: Table) -> None:
    table.upsert([{"page": "a", "views": 1, "tags": ["x"]}])
    table.fold()
    table.upsert([{"page": "a", "views": 2, "tags": ["y", "z"]}, {"page": "b", "views": 1}])
    table.upsert([{"page": "a", "views": 3, "tags": ["w"]}])
    table.replace([{"page": "a", "views": 50}], missing="null")
    table.delete(["b"])
    table.upsert([{"page": "a", "views": 1}, {"page": "b", "views": 9}])

    def effects(since: int) -> list[tuple[Any, ...]]:
        rows = table.feed(since).to_pylist()
        return [(row["_seq"], row["page"], row["_kind"], row["views"], row["rows"], row["tags"]) for row in rows]

    every = [
        (1, "a", "insert", 1, 1, ["x"]),
        (2, "a", "update", 3, 2, ["x", "y", "z"]),
        (2, "b", "insert", 1, 1, None),
        (3, "a", "update", 6, 3, ["y", "z", "w"]),
        (4, "a", "update", 50, None, None),
        (5, "b", "delete", 1, 1, None),
        (6, "a", "update", 51, 1, None),
        (6, "b", "insert", 9, 1, None),
    ]
    for since in range(6):
        assert effects(since) == [effect for effect in every if effect[0] > since]


# -- sums that do not fit


def test_a_sum_that_does_not_fit_stops_readers_until_its_row_is_written_anew(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("web.pages", COLUMNS, key="page", merge_rules=RULES)
        with pytest.raises(InvalidRequest, match="sum of column 'views' does not fit int64 in the row with page 'a'"):
            table.upsert([{"page": "a", "views": 2**62}, {"page": "a", "views": 2**62}])
        assert table.snapshot().seq == 0, "a batch that does not fit by itself is refused"
        table.upsert([{"page": "a", "views": 2**62}, {"page": "b", "views": 1}])
        table.upsert([{"page": "a", "views": 2**62}])
        with pytest.raises(InvalidRequest, match="delete that row or write it with replace"):
            table.to_arrow()
        with pytest.raises(InvalidRequest, match="does not fit"):
            table.fold()
        assert table.to_arrow(as_of=1).num_rows == 2
        table.upsert([{"page": "a", "views": -(2**62)}])
        assert shown(table, "page", "views") == [("a", 2**62), ("b", 1)], "what fits again is right again"
        table.upsert([{"page": "a", "views": 2**62}])
        table.replace([{"page": "a", "views": 5}], missing="null")
        table.upsert([{"page": "a", "views": 1}])
        assert shown(table, "page", "views") == [("a", 6), ("b", 1)]
        table.fold()
        assert shown(table, "page", "views") == [("a", 6), ("b", 1)]


def test_one_writer_does_not_fail_the_others_that_share_its_commit(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("web.pages", COLUMNS, key="page", merge_rules=RULES)
        with ThreadPoolExecutor(8) as threads:
            done = [threads.submit(table.upsert, [{"page": "a", "views": 2**62}]) for _ in range(8)]
            done += [threads.submit(table.upsert, [{"page": "b", "views": 1}]) for _ in range(8)]
        assert all(future.result().rows == 1 for future in done)
        table.delete(["a"])
        assert shown(table, "page", "views") == [("b", 8)]


# -- declared at creation


def test_rules_are_shown_kept_and_make_a_table_of_a_newer_format(folder: Path) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("web.pages", COLUMNS, key="page", merge_rules={**RULES, "tags": " APPEND( 3 ) "})
        lake.create_table("a.plain", COLUMNS, key="page", merge_rules={"title": "last"})
        assert table.definition.merge_rules == RULES
        assert lake.create_table("web.pages", COLUMNS, key="page", merge_rules=RULES, if_not_exists=True)
        with pytest.raises(Conflict, match=r"exists with other merge rules: it has .*views: sum.*asked for was none"):
            lake.create_table("web.pages", COLUMNS, key="page", if_not_exists=True)
    with Lake(folder / "lake") as lake:
        table = lake.table("web.pages")
        assert table.definition.merge_rules == RULES
        assert table._internals.handles.changes.log.properties[FORMAT_PROPERTY] == "4"
        plain = lake.table("a.plain")
        assert plain.definition.merge_rules == {}
        assert plain._internals.handles.changes.log.properties[FORMAT_PROPERTY] == "1"
        assert "sum" in table._repr_html_()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"page": "max"}, "column 'page' is in key"),
        ({"views": "summ"}, "no merge rule 'summ': did you mean 'sum'"),
        ({"views": "median"}, r"no merge rule 'median': use last, last_non_null, .*append\(n\)"),
        ({"vievs": "sum"}, "'vievs', which is no column of the table: did you mean 'views'"),
        ({"title": "sum"}, r"column 'title' is string, and its merge rule 'sum' is for int64 or decimal\(38, s\)"),
        ({"title": "or"}, "is for bool"),
        ({"views": "append(5)"}, "is for a list"),
        ({"tags": "append"}, r"say how many elements the list keeps at most, e.g. append\(100\)"),
        ({"tags": "append(0)"}, "append keeps 1 to 100,000"),
        ({"tags": "append(many)"}, "say how many elements"),
        ({"tags": "max"}, "is for a number, text, date or timestamp"),
        ({"views": 7}, "is a text like 'sum', not int"),
        (["views"], "merge_rules are rules by column"),
    ],
)
def test_rules_that_make_no_sense_are_refused_and_nothing_is_created(lake: Lake, rules: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        lake.create_table("web.pages", COLUMNS, key="page", merge_rules=rules)
    assert lake.tables() == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"merge_rules": {"views": "sum"}}, "give the table a key"),
        ({"key": "page", "order_by": "seen", "merge_rules": {"views": "sum"}}, "order_by do not go together"),
        ({"key": "page", "time": "seen", "merge_rules": {"seen": "max"}}, "column 'seen' is in time"),
        ({"key": "page", "partition_by": "title", "merge_rules": {"title": "max"}}, "is in partition_by"),
    ],
)
def test_rules_go_with_a_key_and_without_an_order(lake: Lake, given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        lake.create_table("web.pages", COLUMNS, **given)
    assert lake.tables() == []


@pytest.mark.parametrize("kind", [pa.int32(), pa.float64(), pa.decimal128(10, 2)])
def test_sums_are_of_types_that_are_exact_and_have_room(lake: Lake, kind: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match=r"int64 or decimal\(38, s\), which add exactly and have room"):
        lake.create_table("a.t", pa.schema([("k", pa.int64()), ("v", kind)]), key="k", merge_rules={"v": "sum"})


def test_rules_in_sql(lake: Lake) -> None:
    lake.execute(
        "create table a.t (k bigint primary key, v bigint, tags array<string>) "
        "with (merge_rules = 'v=sum, tags = append(2)')"
    )
    assert lake.table("a.t").definition.merge_rules == {"v": "sum", "tags": "append(2)"}
    assert lake.sql("describe a.t").column("role").to_pylist() == ["key", "sum", "append(2)"]
    lake.execute("create table a.u (k bigint primary key, v bigint) with (merge_rules = ('v=max'))")
    assert lake.table("a.u").definition.merge_rules == {"v": "max"}
    with pytest.raises(InvalidRequest, match="is no merge rule: write COLUMN=RULE"):
        lake.execute("create table a.w (k bigint primary key, v bigint) with (merge_rules = 'sum')")
    with pytest.raises(InvalidRequest, match="given two merge rules"):
        lake.execute("create table a.w (k bigint primary key, v bigint) with (merge_rules = 'v=sum, v=max')")
    assert lake.tables() == ["a.t", "a.u"]


def test_rows_that_add_up_do_not_expire(lake: Lake, table: Table) -> None:
    expires = "seen + interval '1 day'"
    with pytest.raises(InvalidRequest, match="rows of a table with merge rules do not expire"):
        table.set_options({"expires": expires})
    with pytest.raises(InvalidRequest, match="rows of a table with merge rules do not expire"):
        lake.create_table("web.other", COLUMNS, key="page", merge_rules=RULES, expires=expires)
    assert lake.tables() == ["web.pages"]


def test_if_changed_is_refused_where_every_row_counts(table: Table) -> None:
    with pytest.raises(InvalidRequest, match="every row counts by its merge rules: leave if_changed out"):
        table.upsert([{"page": "a", "views": 1}], if_changed=True)
    assert table.snapshot().seq == 0
