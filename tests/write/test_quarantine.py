"""Records that were set aside: they are shown as they came, tried once more exactly once, and purged when told."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

import pyarrow as pa
import pytest

from lithify import Corruption, InvalidRequest, Lake, NotFound, Table
from lithify.files.local import LocalStorage
from support.faults import ANY, FaultyStore, Stopped, os_failure, stop
from support.folders import copied

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32())])
BIG = 2**40
RECORDS: list[dict[str, object]] = [
    {"id": 1, "n": 1},
    {"id": 2, "n": BIG},
    {"id": 3, "n": "many"},
    {"id": 4, "n": BIG + 1},
]


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as lake:
        yield lake


def loaded(lake: Lake, folder: Path, records: list[dict[str, object]] = RECORDS, key: str | None = "id") -> Table:
    """A table into which some of the records do not fit."""
    table = lake.create_table("s.t", SCHEMA, key=key, if_not_exists=True)
    (folder / "in.json").write_text("".join(json.dumps(record) + "\n" for record in records))
    lake.ingest("s.t", str(folder / "in.json"), on_bad_record="quarantine")
    return table


def name_in(table: Table) -> str:
    (only,) = table.quarantine()
    return only.name


def rows(table: Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}


def test_what_was_set_aside_is_listed_and_shown_as_it_came(lake: Lake, folder: Path) -> None:
    table = loaded(lake, folder)
    (found,) = table.quarantine()
    assert found.records == 3
    assert found.bytes == sum(path.stat().st_size for path in (Path(lake.path) / "s/t/quarantine").rglob("*.json"))
    shown = table.quarantined(found.name)
    assert [json.loads(each.record)["id"] for each in shown] == [2, 3, 4]
    assert [each.line for each in shown] == [2, 3, 4]
    assert {each.column for each in shown} == {"n"}
    assert all(each.file is not None and each.file.endswith("in.json") and each.why for each in shown)
    assert table.quarantined(found.name, limit=1, after=1) == shown[1:2]
    assert table.quarantined(found.name, after=3) == []


def test_a_table_where_nothing_was_set_aside(lake: Lake) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    assert table.quarantine() == []
    assert table.purge_quarantine() == []
    for call in (table.quarantined, table.retry_quarantine, table.purge_quarantine):
        with pytest.raises(NotFound, match="'x'"):
            call("x")


@pytest.mark.parametrize("name", ["../base", "..", ".", "", "a/b"])
def test_a_name_leads_nowhere_else(lake: Lake, folder: Path, name: str) -> None:
    table = loaded(lake, folder)
    with pytest.raises(NotFound):
        table.quarantined(name)
    with pytest.raises(NotFound):
        table.purge_quarantine(name)
    assert len(table.quarantine()) == 1


def test_what_fits_by_now_is_written_and_the_rest_stays(lake: Lake, folder: Path) -> None:
    table = loaded(lake, folder)
    name = name_in(table)
    nothing = table.retry_quarantine(name)
    assert (nothing.written, nothing.left, nothing.seq) == (0, 3, None)
    assert nothing.why is not None
    table.alter_column("n", type="int64")

    done = table.retry_quarantine(name, actor="ops")

    assert (done.written, done.left, done.seq) == (2, 1, table.snapshot().seq)
    assert "many" in str(done.why)
    assert rows(table) == {1: 1, 2: BIG, 4: BIG + 1}
    assert [json.loads(each.record)["id"] for each in table.quarantined(name)] == [3]
    assert table.history()[0].actor == "ops"


def test_a_set_of_which_all_fits_is_gone(lake: Lake, folder: Path) -> None:
    table = loaded(lake, folder, [{"id": 1, "n": BIG}, {"id": 2, "n": 2}])
    table.alter_column("n", type="int64")
    assert table.retry_quarantine(name_in(table)).left == 0
    assert table.quarantine() == []
    assert not list((Path(lake.path) / "s/t/quarantine").iterdir())


def test_records_that_lack_a_column_are_tried_as_told(lake: Lake, folder: Path) -> None:
    table = loaded(lake, folder, [{"id": 1, "n": 1}, {"id": 2}])
    name = name_in(table)
    assert table.retry_quarantine(name).written == 0
    assert table.retry_quarantine(name, missing="null").written == 1
    assert table.get(2) == {"id": 2, "n": None}


def test_bytes_that_were_no_text_do_not_become_one(lake: Lake, folder: Path) -> None:
    """Shown as \\xNN, such a byte behind a backslash makes a record that can be read, with a value of nobody's."""
    table = lake.create_table("a.bytes", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
    values = [b"Gr\xfc\xdf", b"a\\\xfc", b"a\\\\\xfc", b"\\\xfc\\\xdf"]
    records = [b'{"id": %d, "v": "%b"}' % (number, value) for number, value in enumerate(values)]
    (folder / "bytes.json").write_bytes(b"\n".join([*records, b'{"id": 9, "v": "text"}']))
    lake.ingest("a.bytes", str(folder / "bytes.json"), on_bad_record="quarantine")
    (aside,) = table.quarantine()

    tried = table.retry_quarantine(aside.name)

    assert (tried.written, tried.left) == (0, len(values))
    assert "no text in its encoding" in str(tried.why)
    assert table.to_arrow().to_pylist() == [{"id": 9, "v": "text"}]


def test_a_line_of_csv_cannot_be_tried(lake: Lake, folder: Path) -> None:
    table = lake.create_table("s.t", SCHEMA, key="id")
    (folder / "in.csv").write_text("id,n\n1,1\n2,many\n")
    lake.ingest("s.t", str(folder / "in.csv"), on_bad_record="quarantine")
    done = table.retry_quarantine(name_in(table))
    assert (done.written, done.left) == (0, 1)
    assert "no JSON object" in str(done.why)


@pytest.mark.parametrize(("key", "all_fits"), [("id", True), (None, False)])
def test_wherever_it_dies_each_record_is_written_once(folder: Path, key: str | None, all_fits: bool) -> None:
    """One place after the other, until an attempt lives to its end."""
    with Lake(folder / "made") as lake:
        table = loaded(lake, folder, [RECORDS[0], RECORDS[1], RECORDS[3]] if all_fits else RECORDS, key)
        table.alter_column("n", type="int64")
        name = name_in(table)
    for number in range(1, 200):
        path, died = copied(folder / "made", folder / str(number)), False
        try:
            with Lake(path, store=FaultyStore(ANY, stop, number)) as lake:
                lake.table("s.t").retry_quarantine(name)
        except Stopped:
            died = True
        with Lake(path) as lake:
            table = lake.table("s.t")
            if died and table.quarantine():
                table.retry_quarantine(name)
            assert sorted(rows(table).items()) == [(1, 1), (2, BIG), (4, BIG + 1)], f"died at {number}"
            assert table.to_arrow().num_rows == 3, f"died at {number}"
            left = [json.loads(one.record)["id"] for found in table.quarantine() for one in table.quarantined(name)]
            assert left == ([] if all_fits else [3]), f"died at {number}"
        shutil.rmtree(path)
        if not died:
            assert number > 5
            return
    raise AssertionError("it never came to its end")


def test_what_fits_only_after_a_retry_that_died_is_not_taken_for_written(folder: Path) -> None:
    """The commit of the one that died has two of the rows; the third fits by the time of the next."""
    with Lake(folder / "lake", store=FaultyStore("quarantine.committed", stop)) as lake:
        table = loaded(lake, folder, [{"id": 1, "n": 1}, {"id": 2, "n": BIG}, {"id": 3, "n": 3, "more": "x"}], None)
        name = name_in(table)
        table.alter_column("n", type="int64")
        with pytest.raises(Stopped):
            table.retry_quarantine(name)
    with Lake(folder / "lake") as lake:
        table = lake.table("s.t")
        table.add_column(pa.field("more", pa.string()))
        assert table.retry_quarantine(name).written == 1
        assert [json.loads(each.record)["id"] for each in table.quarantined(name)] == [3]
        assert (table.retry_quarantine(name).written, table.quarantine()) == (1, [])
        assert sorted(rows(table).items()) == [(1, 1), (2, BIG), (3, 3)]
        assert table.to_arrow().num_rows == 3


LACKING: list[dict[str, object]] = [{"id": 1, "n": 1}, {"id": 2, "n": BIG}, {"id": 3}]


def raced(folder: Path, at: str, rival: Callable[[Table, str], None], missing: str | None = None) -> None:
    """Two of LACKING are tried once more, and somebody else comes in between."""
    with Lake(folder / "lake") as lake:
        table = loaded(lake, folder, LACKING)
        table.alter_column("n", type="int64")
        name = name_in(table)

    def come() -> None:
        with Lake(folder / "lake") as other:
            rival(other.table("s.t"), name)

    with Lake(folder / "lake", store=FaultyStore(at, come)) as lake:
        try:
            lake.table("s.t").retry_quarantine(name, missing=missing)  # type: ignore[arg-type]
        except NotFound:
            assert lake.table("s.t").quarantine() == []


def written_and_left(folder: Path) -> tuple[list[int], list[int]]:
    with Lake(folder / "lake") as lake:
        table = lake.table("s.t")
        left = [json.loads(one.record)["id"] for found in table.quarantine() for one in table.quarantined(found.name)]
        return sorted(table.to_arrow()["id"].to_pylist()), left


@pytest.mark.parametrize("mine", [None, "null"])
@pytest.mark.parametrize("others", [None, "null"])
def test_of_two_who_try_at_once_each_record_is_written_or_left(
    folder: Path, mine: str | None, others: str | None
) -> None:
    def rival(table: Table, name: str) -> None:
        table.retry_quarantine(name, missing=others)  # type: ignore[arg-type]

    raced(folder, "quarantine.staged", rival, mine)
    found, left = written_and_left(folder)
    assert sorted([*found, *left]) == [1, 2, 3]


def test_who_looks_and_dies_takes_nothing_from_one_under_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the one under way leaves must not count as written once it fits."""

    def rival(table: Table, name: str) -> None:
        with monkeypatch.context() as dying:
            dying.setattr("lithify.write.retry_quarantine._bounded", lambda *_: stop())
            with pytest.raises(Stopped):
                table.retry_quarantine(name)

    raced(folder, "quarantine.staged", rival)
    with Lake(folder / "lake") as lake:
        table = lake.table("s.t")
        for found in table.quarantine():
            table.retry_quarantine(found.name, missing="null")
    assert written_and_left(folder) == ([1, 2, 3], [])


def test_what_was_staged_by_one_that_lost_goes(folder: Path) -> None:
    """It says what that one would have left, which nobody may take for what is left."""

    def rival(table: Table, name: str) -> None:
        table.retry_quarantine(name)
        raise Stopped

    with pytest.raises(Stopped):
        raced(folder, "quarantine.staged", rival, "null")
    assert written_and_left(folder) == ([1, 2], [3])
    with Lake(folder / "lake") as lake:
        table = lake.table("s.t")
        name = name_in(table)
        assert (table.retry_quarantine(name).written, table.retry_quarantine(name).left) == (0, 1)
        assert not list((Path(lake.path) / "s/t/quarantine" / name).glob("retry-*"))
    assert written_and_left(folder) == ([1, 2], [3])


def test_records_that_another_takes_out_meanwhile_are_read_anew(folder: Path) -> None:
    """A part of what was and a part of what is left are together neither."""
    many: list[dict[str, object]] = [
        {"id": 0, "n": 0},
        *(dict[str, object](id=number, n=BIG) for number in range(1, 8_000)),
        {"id": 8_000, "n": "many"},
    ]
    with Lake(folder / "lake") as lake:
        table = loaded(lake, folder, many, None)
        table.alter_column("n", type="int64")
        name = name_in(table)

    class Meanwhile(LocalStorage):
        came = False

        def read_range(self, path: PurePath, start: int, length: int) -> bytes:
            if start and "quarantine" in path.parts and not self.came:
                self.came = True
                with Lake(folder / "lake") as other:
                    other.table("s.t").retry_quarantine(name)
            return super().read_range(path, start, length)

    store = Meanwhile()
    with Lake(folder / "lake", store=store) as lake:
        done = lake.table("s.t").retry_quarantine(name)
        assert store.came
        assert (done.written, done.left) == (0, 1)
        assert lake.table("s.t").to_arrow().num_rows == 8_000


def test_what_fails_after_the_commit_is_no_failure_of_it(folder: Path) -> None:
    fail = os_failure(errno.EIO)

    class Broken(LocalStorage):
        committed = False

        def step(self, name: str) -> None:
            if self.committed:
                fail()
            self.committed = name == "quarantine.committed"

    with Lake(folder / "lake") as lake:
        table = loaded(lake, folder)
        table.alter_column("n", type="int64")
        name = name_in(table)
    with Lake(folder / "lake", store=Broken()) as lake:
        assert lake.table("s.t").retry_quarantine(name).written == 2
    with Lake(folder / "lake") as lake:
        table = lake.table("s.t")
        assert (table.retry_quarantine(name).written, table.retry_quarantine(name).written) == (2, 0)
        assert rows(table) == {1: 1, 2: BIG, 4: BIG + 1}


def test_only_what_is_old_is_purged(lake: Lake, folder: Path) -> None:
    table = loaded(lake, folder)
    old = name_in(table)
    assert table.purge_quarantine(older_than_hours=1) == []
    for part in (Path(lake.path) / "s/t/quarantine" / old).iterdir():
        os.utime(part, (time.time() - 7_200,) * 2)
    loaded(lake, folder)
    newer = next(each.name for each in table.quarantine() if each.name != old)
    assert [each.name for each in table.purge_quarantine(older_than_hours=1)] == [old]
    assert [each.name for each in table.quarantine()] == [newer]
    assert [each.records for each in table.purge_quarantine(newer)] == [3]
    assert table.quarantine() == []


@pytest.mark.parametrize("wrong", [0, -1, "x", True])
def test_a_wrong_age_is_refused(lake: Lake, folder: Path, wrong: object) -> None:
    table = loaded(lake, folder)
    with pytest.raises(InvalidRequest, match="hours"):
        table.purge_quarantine(older_than_hours=wrong)  # type: ignore[arg-type]
    assert len(table.quarantine()) == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"why": 1',
        "[]",
        '{"why": 1, "record": "{}"}',
        '{"why": "x", "record": 2}',
        '{"why": "x", "record": "{}", "line": "z"}',
        '{"why": "x", "record": "\\ud800"}',
    ],
)
def test_a_file_that_is_none_of_ours_is_named(lake: Lake, folder: Path, text: str) -> None:
    table = loaded(lake, folder)
    name = name_in(table)
    (part,) = (Path(lake.path) / "s/t/quarantine" / name).glob("part-*")
    part.write_text(text)
    for call in (table.quarantined, table.retry_quarantine):
        with pytest.raises(Corruption, match="is no record that was set aside"):
            call(name)
    assert rows(table) == {1: 1}
