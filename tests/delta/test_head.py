"""A log that is followed commit by commit says what deltalake says of it when it opens it anew.

Random logs, whose commits come from Lithify, from deltalake and from writers that put there what neither would.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import string
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.transaction import AddAction

from lithify import Corruption, Lake, LithifyError, Unavailable
from lithify.core.snapshot import DataFile
from lithify.delta.actions import LogChange, parse_objects
from lithify.delta.archive import LogLimits
from lithify.delta.commit_outcome import Intent, Lost
from lithify.delta.entries import spelled
from lithify.delta.head import TXNS_KEPT_MAX
from lithify.delta.live_files import newest_known
from lithify.delta.log import FOLLOWED_MAX, DeltaLog
from lithify.files.addresses import path_of
from lithify.files.local import LocalStorage
from lithify.files.open_storage import storage_of
from lithify.files.parquet import Written
from support.delta_scan import delta_scan, installed
from support.effort import SOAK
from support.fetched import NotHere

KINDS: dict[str, pa.DataType] = {
    "i": pa.int64(),
    "b": pa.int8(),
    "f": pa.float64(),
    "g": pa.float32(),
    "t": pa.bool_(),
    "s": pa.string(),
    "d": pa.date32(),
    "z": pa.timestamp("us", "UTC"),
    "n": pa.timestamp("us"),
    "c": pa.decimal128(12, 2),
    "y": pa.binary(),
}
COLUMNS = pa.schema(list(KINDS.items()))
PARTITIONED = ("i", "t", "s", "d", "z", "n", "c", "f", "y")
TXNS = ("a", "lithify.seq", "lithify.folded", "lithify.batch.x", "ä")


def texts(rng: random.Random) -> dict[str, str]:
    """A value of each type as a partition spells it."""
    day = dt.date(1990, 1, 1) + dt.timedelta(days=rng.randrange(20_000))
    micros = rng.choice(["", ".5", ".123456"])
    return {
        "i": str(rng.randrange(-(10**12), 10**12)),
        "b": str(rng.randrange(-128, 128)),
        "f": str(rng.random()),
        "g": str(rng.randrange(100) / 4),
        "t": rng.choice(["true", "false"]),
        "s": rng.choice(["a", "ä b%20", "x/y", "😀", "__HIVE__", " "]),
        "d": day.isoformat(),
        "z": f"{day} 01:02:03{micros}",
        "n": f"{day} 01:02:03{micros}",
        "c": f"{rng.randrange(-(10**8), 10**8) / 100:.2f}",
        "y": "bytes",
    }


def stats(rng: random.Random) -> str:
    """As writers put them there: for some columns, with some bounds missing, or of another type."""
    low, high = texts(rng), texts(rng)

    def of(values: dict[str, str]) -> dict[str, Any]:
        found: dict[str, Any] = {
            "i": int(values["i"]),
            "b": int(values["b"]),
            "f": float(values["f"]),
            "g": float(values["g"]),
            "t": values["t"] == "true",
            "s": values["s"],
            "d": values["d"],
            "z": values["z"].replace(" ", "T") + rng.choice(["Z", "+02:00"]),
            "n": values["n"].replace(" ", "T"),
            "c": float(values["c"]),
            "unknown": 1,
        }
        return {name: value for name, value in found.items() if rng.random() < 0.8}

    content: dict[str, Any] = {"numRecords": rng.randrange(100), "minValues": of(low), "maxValues": of(high)}
    content["nullCount"] = {name: rng.randrange(3) for name in KINDS if rng.random() < 0.8}
    content["tightBounds"] = True
    if rng.random() < 0.1:
        content.pop(rng.choice(sorted(content)))
    return json.dumps(content, ensure_ascii=False)


class Program:
    """A log, and writers that do not know of each other."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.live = folder, rng, dict[str, None]()
        self.partitions = rng.sample(PARTITIONED, rng.randrange(0, 4))
        if {"f", "y"} & set(self.partitions) and rng.random() < 0.7:
            self.partitions = [name for name in self.partitions if name not in "fy"]
        DeltaTable.create(str(folder), Schema.from_arrow(COLUMNS), partition_by=self.partitions)

    @property
    def next_version(self) -> int:
        return len(list((self.folder / "_delta_log").glob("*.json")))

    def put(self, *actions: dict[str, Any]) -> None:
        path = self.folder / "_delta_log" / f"{self.next_version:020d}.json"
        path.write_text("\n".join(json.dumps(action, ensure_ascii=False) for action in actions) + "\n")

    def add(self) -> dict[str, Any]:
        rng, values = self.rng, texts(self.rng)
        name = "".join(rng.choices(string.ascii_letters + " %ä#", k=12)) + f"{rng.random()}.parquet"
        path = quote(name) if rng.random() < 0.5 else f"write-{rng.randrange(16**32):032x}.parquet"
        self.live[path] = None
        stated: dict[str, str | None] = {
            name: rng.choice([values[name], values[name], values[name], None, ""]) for name in self.partitions
        }
        add: dict[str, Any] = {"path": path, "partitionValues": stated, "size": rng.randrange(1, 10**6)}
        add |= {"modificationTime": rng.randrange(10**12), "dataChange": rng.random() < 0.5}
        if rng.random() < 0.9:
            add["stats"] = stats(rng)
        if rng.random() < 0.3:
            add |= {"tags": {"x": "y"}, "baseRowId": 3, "somethingNew": {"deep": [1]}}
        return {"add": add}

    def remove(self) -> dict[str, Any]:
        path = self.rng.choice(list(self.live))
        del self.live[path]
        return {"remove": {"path": path, "deletionTimestamp": 5, "dataChange": True, "extendedFileMetadata": False}}

    def txn(self) -> dict[str, Any]:
        return {"txn": {"appId": self.rng.choice(TXNS), "version": self.rng.randrange(10**9), "lastUpdated": 10**13}}

    # -- steps

    def by_hand(self) -> None:
        actions = [{"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": "somebody"}}]
        actions += [self.add() for _ in range(self.rng.randrange(4))]
        actions += [self.txn() for _ in range(self.rng.randrange(2))]
        if self.live and self.rng.random() < 0.5:
            there = [path for path in self.live if not any(path == a.get("add", {}).get("path") for a in actions)]
            if there:
                self.live = dict.fromkeys(self.live)
                gone = self.rng.choice(there)
                del self.live[gone]
                actions.append({"remove": {"path": gone, "deletionTimestamp": 5, "dataChange": True}})
        self.rng.shuffle(actions)
        self.put(*actions)

    def again(self) -> None:
        """Statistics are computed anew: a file that is there is added once more."""
        if self.live:
            path = self.rng.choice(list(self.live))
            add = self.add()
            del self.live[add["add"]["path"]]
            add["add"]["path"] = path
            self.put(add)

    def unknown(self) -> None:
        self.put(
            self.add(),
            {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
            {"cdc": {"path": "_change_data/x.parquet", "partitionValues": {}, "size": 1, "dataChange": False}},
        )

    def of_the_future(self) -> None:
        """What is not even in the specification."""
        self.put(self.add(), {"somethingElse": {"deep": [{"a": None}]}}, self.txn())

    def protocol(self) -> None:
        now = DeltaTable(str(self.folder)).protocol()
        more = self.rng.choice(["appendOnly", "invariants", "changeDataFeed"])
        features = sorted({*(now.writer_features or ()), more})
        said = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": features}
        self.put({"protocol": {**said, "readerFeatures": sorted(now.reader_features or ())}}, self.add())

    def by_deltalake(self) -> None:
        row = {name: [None] for name in KINDS} | {name: [1] for name in ("i",)}
        table = pa.table({name: pa.array(values, KINDS[name]) for name, values in row.items()})
        write_deltalake(str(self.folder), table, mode="append", schema_mode="merge")
        self.live |= dict.fromkeys(self.paths())

    def properties(self) -> None:
        DeltaTable(str(self.folder)).alter.set_table_properties({"x": str(self.rng.random())}, False)

    def column(self) -> None:
        name = f"new{self.next_version}"
        DeltaTable(str(self.folder)).alter.add_columns([Schema.from_arrow(pa.schema([(name, "int64")])).fields[0]])

    def checkpoint(self) -> None:
        DeltaTable(str(self.folder)).create_checkpoint()

    def ours(self) -> None:
        log = DeltaLog.open(self.folder, LocalStorage())
        files = log.files([])
        gone = [file for file in files if self.rng.random() < 0.2 and unquote(file.log_path) == file.log_path]
        values = texts(self.rng)
        kinds = {name: values[name] for name in log.partition_columns}
        written = Written(f"fold-{self.rng.randrange(16**32):032x}/part ä%.parquet", 5, 7, stats(self.rng), b"")
        change = LogChange({"operation": "test"}, [(written, kinds)], gone, {"lithify.folded": self.next_version})
        log.try_commit(change, Intent(f"{self.rng.random()}"))
        self.live = dict.fromkeys(self.paths())

    def paths(self) -> list[str]:
        return list(pa.table(DeltaTable(str(self.folder)).get_add_actions(flatten=True))["path"].to_pylist())


STEPS: list[tuple[int, Callable[[Program], None]]] = [
    (8, Program.by_hand),
    (4, Program.ours),
    (2, Program.again),
    (2, Program.by_deltalake),
    (1, Program.unknown),
    (1, Program.of_the_future),
    (1, Program.protocol),
    (1, Program.properties),
    (1, Program.column),
    (1, Program.checkpoint),
]


def said(log: DeltaLog, bounded: list[str]) -> dict[str, Any]:
    return {
        "version": log.version,
        "id": log.id,
        "properties": log.properties,
        "partitions": log.partition_columns,
        "features": log.features,
        "columns": log.columns(),
        "txns": {name: log.txn(name) for name in TXNS},
        "files": {file.log_path: everything(file) for file in log.files(bounded)},
    }


def everything(file: DataFile) -> Any:
    return file, dict(file.partition), dict(file.bounds)


@pytest.mark.parametrize("seed", range(400 if SOAK else 25))
def test_what_is_followed_is_what_deltalake_says(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    program, store = Program(tmp_path / "t", rng), LocalStorage()
    bounded = rng.sample(sorted(KINDS), rng.randrange(len(KINDS)))
    followed = [DeltaLog.open(tmp_path / "t", store) for _ in range(2)]
    followed[0].files(bounded)  # the other makes its files later, from deltalake's and the commits since
    for _ in range(14):
        rng.choices([step for _, step in STEPS], [weight for weight, _ in STEPS])[0](program)
        if rng.random() < 0.3:
            continue  # several at once
        newest_known.clear()  # or one would be told by the other
        fresh = DeltaLog.open(tmp_path / "t", store)
        there = said(fresh, bounded)
        newest_known.clear()
        for log in followed[: 1 if rng.random() < 0.7 else 2]:
            log.refresh()
            assert said(log, bounded) == there


@pytest.mark.bucket
@pytest.mark.parametrize("seed", range(1000, 1040 if SOAK else 1004))
def test_a_log_in_a_bucket_says_the_same(tmp_path: Path, address: str, seed: int) -> None:
    """The files are brought there as they are made."""
    rng = random.Random(seed)
    program, root = Program(tmp_path / "t", rng), path_of(address)
    store, brought = storage_of(root), dict[str, bytes]()
    store.path_guard.trust(root)

    def bring() -> None:
        for file in sorted((program.folder / "_delta_log").iterdir()):
            if file.is_file() and brought.get(file.name) != (content := file.read_bytes()):
                store.put(root / "t/_delta_log" / file.name, content)
                brought[file.name] = content

    bring()
    bounded = rng.sample(sorted(KINDS), rng.randrange(len(KINDS)))
    followed = DeltaLog.open(root / "t", store)
    for _ in range(14):
        rng.choices([step for _, step in STEPS], [weight for weight, _ in STEPS])[0](program)
        bring()
        if rng.random() < 0.3:
            continue
        followed.refresh()
        newest_known.clear()
        there = said(DeltaLog.open(program.folder, LocalStorage()), bounded)
        assert said(followed, bounded) == there
        assert said(DeltaLog.open(root / "t", store), bounded) == there


def test_most_commits_are_followed_without_opening_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would be one of deltalake against itself."""
    program, store = Program(tmp_path / "t", random.Random(3)), LocalStorage()
    log = DeltaLog.open(tmp_path / "t", store)
    log.files([])
    monkeypatch.setattr("lithify.delta.log.open_table", None)
    for _ in range(20):
        program.by_hand()
        program.again()
    log.refresh()

    assert log.version == 40
    assert {file.log_path for file in log.files([])} == set(program.live)


def test_what_is_kept_of_a_log_that_is_only_followed_is_bounded(tmp_path: Path) -> None:
    program, store = Program(tmp_path / "t", random.Random(3)), LocalStorage()
    log = DeltaLog.open(tmp_path / "t", store)
    for number in range(3 * FOLLOWED_MAX):
        program.put({"txn": {"appId": f"lithify.batch.{number}", "version": number}})
        log.refresh()

    assert log.version == 3 * FOLLOWED_MAX
    assert log._tail.commits_since <= FOLLOWED_MAX
    assert len(log._tail.txns) <= TXNS_KEPT_MAX + FOLLOWED_MAX
    assert [log.txn(f"lithify.batch.{number}") for number in (0, 300, 599, 600)] == [0, 300, 599, None]


@pytest.mark.parametrize("ours", [True, False])
def test_transactions_are_known_however_many_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool) -> None:
    monkeypatch.setattr("lithify.delta.head.TXNS_KEPT_MAX", 10)
    program, store = Program(tmp_path / "t", random.Random(3)), LocalStorage()
    log, set_ = DeltaLog.open(program.folder, store), dict[str, int]()
    log.limits = lambda: LogLimits(7, retain_hours=24 if ours else None)
    for number in range(60):
        assert log.txn(f"lithify.batch.{number}") is None
        set_[f"lithify.batch.{number}"] = number
        set_["lithify.seq"] = number
        given = dict.fromkeys(("lithify.seq", f"lithify.batch.{number}"), number)
        log.try_commit(LogChange({}, txns=given), Intent(str(number)))
        log.make_durable()
        log.checkpoint_if_due()
        assert {name: log.txn(name) for name in set_} == set_


def test_a_commit_that_cannot_be_followed_leaves_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor can the log be opened anew just then."""
    program, store = Program(tmp_path / "t", random.Random(3)), LocalStorage()
    program.partitions = []
    log = DeltaLog.open(program.folder, store)
    program.put(program.add(), program.add())
    log.refresh()
    before = log.files([])
    removes = [{"remove": {"path": path, "dataChange": True}} for path in (before[0].log_path, "unknown")]
    program.put(*removes)
    with monkeypatch.context() as broken:
        broken.setattr("lithify.delta.log.open_table", failing)
        for _ in range(2):
            with pytest.raises(Unavailable):
                log.refresh()
            assert log.files([]) == before
    log.refresh()
    assert log.files([]) == before[1:]


def failing(*arguments: Any) -> None:
    raise Unavailable("too many files are open")


ADD = {"path": "write-x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}


@pytest.mark.parametrize(
    "text",
    [
        "\n\n" + json.dumps({"add": ADD}) + "\r\n\n",
        json.dumps({"add": ADD}, indent=2),
        json.dumps({"txn": {"appId": "a", "version": 3}}) + json.dumps({"add": ADD}),
        json.dumps({"add": ADD, "remove": None}),
        json.dumps({"add": ADD, "commitInfo": {"timestamp": 5, "lithify": {"time_ms": "soon"}}}),
    ],
    ids=["blank lines", "indented", "one line", "null", "a time that is none"],
)
def test_what_deltalake_reads_is_read_and_never_set_aside(tmp_path: Path, text: str) -> None:
    program, store = Program(tmp_path / "t", random.Random(1)), LocalStorage()
    log = DeltaLog.open(program.folder, store)
    log.files([])
    commit = program.folder / "_delta_log" / f"{1:020d}.json"
    commit.write_text(text)
    log.refresh()

    assert said(log, []) == said(DeltaLog.open(program.folder, store), [])
    assert [file.path for file in log.files([])] == ["write-x.parquet"]
    assert commit.exists()


@pytest.mark.parametrize(
    "actions",
    [
        [{"add": ADD}, {"add": {**ADD, "size": 7}}],
        [{"remove": {"path": "write-x.parquet", "dataChange": True}}, {"add": ADD}],
        [{"add": {**ADD, "stats": '{"numRecords": "5"}'}}],
        [{"txn": {"appId": "a", "version": 7}}, {"txn": {"appId": "a", "version": 8}}],
    ],
    ids=["added twice", "removed and added", "rows as text", "one transaction twice"],
)
def test_of_commits_that_are_none_deltalake_is_asked(tmp_path: Path, actions: list[dict[str, Any]]) -> None:
    program, store = Program(tmp_path / "t", random.Random(1)), LocalStorage()
    program.put({"add": ADD})
    log = DeltaLog.open(program.folder, store)
    log.files([])
    program.put(*actions)
    log.refresh()

    assert said(log, []) == said(DeltaLog.open(program.folder, store), [])


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf{}", b'{"add": 5}', b'{"commitInfo": {"x": NaN}}', b"{"])
def test_what_is_no_commit_is_not_built_on(tmp_path: Path, content: bytes) -> None:
    """Somebody else's, perhaps half written: an error, or as if it were not there, until it is whole."""
    program, store = Program(tmp_path / "t", random.Random(1)), LocalStorage()
    log = DeltaLog.open(program.folder, store)
    commit = program.folder / "_delta_log" / f"{1:020d}.json"
    commit.write_bytes(content)
    with contextlib.suppress(LithifyError):
        log.refresh()
    commit.write_text(json.dumps({"add": ADD}))
    log.refresh()

    assert [file.path for file in log.files([])] == ["write-x.parquet"]


def test_paths_are_spelled_as_deltalake_spells_them(tmp_path: Path) -> None:
    paths = [f"a{chr(code)}b.parquet" for code in range(1, 128) if chr(code) not in "/."] + ["ä.parquet", "😀.parquet"]
    DeltaTable.create(str(tmp_path / "t"), Schema.from_arrow(pa.schema([("i", "int64")])))
    table = DeltaTable(str(tmp_path / "t"))
    actions = [AddAction(path, 1, {}, 1, True, "{}") for path in paths]
    table.create_write_transaction(actions, "append", table.schema(), [])
    commit = (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").read_bytes()

    assert {action["add"]["path"] for action in parse_objects(commit) if "add" in action} == set(map(spelled, paths))


def test_bounds_of_another_type_say_nothing(tmp_path: Path) -> None:
    program, store = Program(tmp_path / "t", random.Random(1)), LocalStorage()
    program.partitions = []
    log = DeltaLog.open(tmp_path / "t", store)
    wrong = {"i": "7", "b": 300, "f": "x", "t": 1, "s": 5, "d": "yesterday", "z": 1, "n": "1 Jan", "c": 0.123, "y": "b"}
    content = {"numRecords": 1, "minValues": wrong, "maxValues": wrong, "nullCount": {}}
    add = {"path": "write-x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    log.files(sorted(KINDS))
    program.put({"add": {**add, "stats": json.dumps(content)}})
    log.refresh()

    (file,) = log.files(sorted(KINDS))
    assert {name for name, bounds in file.bounds.items() if bounds.known} == set()


def test_all_digits_of_a_decimal_count(tmp_path: Path) -> None:
    store, kind = LocalStorage(), pa.decimal128(38, 2)
    DeltaTable.create(str(tmp_path / "t"), Schema.from_arrow(pa.schema([("c", kind)])))
    log = DeltaLog.open(tmp_path / "t", store)
    log.files(["c"])
    low, high = "12345678901234567890123.45", "99999999999999999999999.99"
    content = f'{{"numRecords": 1, "minValues": {{"c": {low}}}, "maxValues": {{"c": {high}}}}}'
    written = Written("write-x.parquet", 5, 1, content, b"")
    log.try_commit(LogChange({}, [(written, {})]), Intent("x"))

    (file,) = log.files(["c"])
    assert file.bounds["c"][:2] == (Decimal(low), Decimal(high))


def test_files_outside_of_the_table_are_refused_when_a_commit_names_them(tmp_path: Path) -> None:
    program, store = Program(tmp_path / "t", random.Random(1)), LocalStorage()
    program.partitions = []
    log = DeltaLog.open(tmp_path / "t", store)
    log.files([])
    program.put(
        {"add": {"path": "../x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}
    )

    with pytest.raises(Corruption, match="does not lie in the table's folder"):
        log.refresh()


def test_a_version_is_made_once(tmp_path: Path) -> None:
    program, store = Program(tmp_path / "t", random.Random(1)), LocalStorage()
    first, second = (DeltaLog.open(program.folder, store) for _ in range(2))
    change = LogChange({}, [])
    first.try_commit(change, Intent("one"))

    with pytest.raises(Lost):
        second.try_commit(change, Intent("two"))

    second.refresh()
    assert second.try_commit(change, Intent("two")) == 2
    assert [first.commit_record(version).info["write_id"] for version in (1, 2)] == ["one", "two"]


def test_other_engines_read_what_is_committed(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.string())])
        table = lake.create_table("a.t", schema, key="id", time="day", partition_by=["day"])
        for number in range(30):
            table.upsert([{"id": number % 7, "day": f"2026-01-{1 + number % 7:02d}", "v": f"ä {number} 😀"}])
            if number % 5 == 4:
                table.fold()
        table.fold()
        found = sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"])
        base = str(next((tmp_path / "lake").rglob("base")))
    by_deltalake = DeltaTable(base).to_pyarrow_table()
    names = [f"{base}/{path}" for path in DeltaTable(base).to_pyarrow_dataset().files]
    by_duckdb = duckdb.sql(f"select id, v from read_parquet({names!r}) order by id").fetchall()

    assert sorted(by_deltalake.select(schema.names).to_pylist(), key=lambda row: row["id"]) == found
    assert by_duckdb == [(row["id"], row["v"]) for row in found]


@pytest.mark.slow
def test_an_engine_that_shares_no_code_with_us_reads_both_logs(tmp_path: Path) -> None:
    """Commits that we wrote, checkpoints, trimmed logs, rewritten and linked files, an added column."""
    try:
        installed()
    except NotHere as error:
        pytest.skip(str(error))
    with Lake(tmp_path / "lake") as lake:
        schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.string())])
        table = lake.create_table("a.t", schema, key="id", partition_by=["day"])
        for number in range(60):
            row = {"id": number % 40, "day": f"2026-01-{1 + number % 7:02d}", "v": f"ä {number} 😀"}
            table.upsert([row if number <= 30 else {**row, "w": number / 4}])
            if number == 30:
                table.add_column(pa.field("w", pa.float64()))
            if number % 3 == 0:
                table.delete([(number * 7) % 40])
            if number % 2 == 1 and number < 50:
                table.fold()
        at_fold = sorted(table.to_arrow(as_of=table.stats().watermark).to_pylist(), key=itemgetter("id"))
        base, names = table.base_path, table.schema.names

    assert sorted(delta_scan(base).select(names).to_pylist(), key=itemgetter("id")) == at_fold
    changes = base.parent / "changes"
    ours = DeltaTable(changes).to_pyarrow_table().select(["_seq", "_op", "id", "v"]).to_pylist()
    theirs = delta_scan(changes, columns='"_seq", "_op", "id", "v"').to_pylist()
    assert Counter(map(str, theirs)) == Counter(map(str, ours))
    assert len(list((base / "_delta_log").glob("*.checkpoint.parquet"))) >= 1
