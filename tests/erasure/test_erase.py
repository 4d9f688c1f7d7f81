"""Erasing rows from a table, its past and its files, and what the receipt says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lithify import Conflict, Corruption, InvalidRequest, Lake, NotFound, Table, Unavailable, verify_receipt
from lithify.jobs.past_jobs import Journal
from lithify.lake.internals import internals
from lithify.tables.processes import LEFT_MAX
from support.erasures import COLUMNS, NEW, OLD, SETTINGS, places_of, wanda

NEEDLES = (NEW, OLD, "Wanda")


def left(lake: Lake) -> list[str]:
    return places_of(Path(lake.path), *NEEDLES)


def test_hidden_when_it_returns_and_gone_from_all_files_when_it_is_done(lake: Lake, customers: Table) -> None:
    before, kept = left(lake), {row["id"] for row in customers.to_arrow().to_pylist()} - {42}
    assert len(before) > 5  # or nothing is shown here

    erasure = lake.erase("shop.customers", keys=[42], history="cut", reason="ticket-118")

    assert customers.get(42) is None
    assert erasure.state == "open"
    assert erasure.wait().state == "done", (erasure.places, erasure.problems)
    assert left(lake) == []
    assert {row["id"] for row in customers.to_arrow().to_pylist()} == kept


def test_rows_that_are_in_memory_are_erased_too(lake: Lake, customers: Table) -> None:
    lake.cache.pin("shop.customers")
    assert customers.get(42) is not None

    erasure = lake.erase("shop.customers", keys=[42], history="cut")

    assert (customers.get(42), erasure.wait().state) == (None, "done")


def test_other_engines_read_what_is_left(lake: Lake, customers: Table) -> None:
    lake.erase("shop.customers", keys=[42], history="cut").wait()
    ours = sorted(row["id"] for row in customers.to_arrow().to_pylist())
    base = str(customers.base_path)
    assert sorted(DeltaTable(base).to_pyarrow_table()["id"].to_pylist()) == ours
    assert sorted(polars.read_delta(base)["id"].to_list()) == ours


def test_nothing_older_can_be_read_and_that_is_said(lake: Lake, customers: Table) -> None:
    seq = customers.snapshot().seq
    lake.erase("shop.customers", keys=[42], history="cut").wait()
    for old in range(seq + 1):
        with pytest.raises(NotFound):
            customers.to_arrow(as_of=old)
    with pytest.raises(NotFound):
        list(customers.changes(since=0))
    assert all(entry.seq > seq for entry in customers.history())


def test_writers_and_readers_go_on(lake: Lake, customers: Table, folder: Path) -> None:
    with Lake(lake.path, settings=SETTINGS) as other:
        held = other.table("shop.customers")
        assert held.get(42) is not None
        lake.erase("shop.customers", keys=[42], history="cut").wait()
        assert held.get(42) is None
        held.upsert(wanda("wanda.again@example.org"))
        held.fold()
        assert held.get(42)["mail"] == "wanda.again@example.org"
    assert customers.count() == 39
    assert DeltaTable(str(customers.base_path)).to_pyarrow_table().num_rows == 39


def test_twice_is_safe(lake: Lake, customers: Table) -> None:
    first = lake.erase("shop.customers", keys=[42], history="cut").wait()
    second = lake.erase("shop.customers", keys=[42], history="cut").wait()
    assert (first.state, second.state) == ("done", "done")
    assert second.receipt is not None
    assert (second.receipt["rows_at_request"], second.receipt["number"]) == (0, 2)
    assert second.verify().ok


def test_a_key_that_never_was_gets_a_receipt_that_says_so(lake: Lake, customers: Table) -> None:
    receipt = lake.erase("shop.customers", keys=[4711], history="cut").wait().receipt
    assert receipt is not None
    assert (receipt["keys"], receipt["rows_at_request"], receipt["done"]["files_with_rows"]) == (1, 0, 1)  # its delete


def test_by_a_condition(lake: Lake, customers: Table) -> None:
    erasure = lake.erase("shop.customers", where="name = 'name-1'", history="cut").wait()
    assert erasure.receipt is not None
    assert erasure.receipt["keys"] == 8
    assert customers.count(where="name = 'name-1'") == 0
    assert places_of(Path(lake.path), "user11@example", "user36@example") == []


def test_keys_of_several_columns(lake: Lake) -> None:
    columns = pa.schema([("shop", pa.string()), ("id", pa.int64()), ("mail", pa.string())])
    table = lake.create_table("a.pairs", columns, key=["shop", "id"])
    table.upsert([{"shop": s, "id": i, "mail": f"{s}{i}@example.org"} for s in ("north", "south") for i in range(9)])
    table.fold()
    erasure = lake.erase("a.pairs", keys=[{"shop": "north", "id": 3}], history="cut").wait()
    assert erasure.state == "done", (erasure.places, erasure.problems)
    assert (table.count(), places_of(Path(lake.path), "north3@example")) == (17, [])
    assert erasure.verify(key=("north", 3), salt=erasure.salt).subject is True


def test_a_dry_run_tells_and_changes_nothing(lake: Lake, customers: Table) -> None:
    seq = customers.snapshot().seq
    customers.tag("audit")
    plan = lake.erase("shop.customers", keys=[42, 4711], history="cut", dry_run=True)
    assert (plan.keys, plan.rows, plan.blocked_by) == (2, 1, (f"the tag audit of seq {seq}",))
    assert (customers.snapshot().seq, lake.erasures()) == (seq, [])


# -- what is refused


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"keys": [42], "history": "burn"}, "history"),
        ({"history": "cut"}, "keys"),
        ({"keys": [42], "where": "n = 1", "history": "cut"}, "not both"),
        ({"keys": [], "history": "cut"}, "at least one key"),
        ({"where": "n < 0", "history": "cut"}, "no row"),
        ({"where": "n > 0", "history": "cut", "rows_max": 10}, "rows_max"),
        ({"keys": [42], "history": "cut", "reason": "Wanda Needleman asked"}, "ticket"),
        ({"keys": [42], "history": "cut", "reason": "customer 42"}, "ticket"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_nothing_is_done(
    lake: Lake, customers: Table, asked: dict[str, object], said: str
) -> None:
    seq = customers.snapshot().seq
    with pytest.raises(InvalidRequest, match=said):
        lake.erase("shop.customers", **asked)
    assert (customers.snapshot().seq, lake.erasures()) == (seq, [])


def test_tables_that_it_does_not_work_on_are_named(lake: Lake, customers: Table, folder: Path) -> None:
    lake.create_table("a.keyless", COLUMNS)
    with pytest.raises(InvalidRequest, match="no key"):
        lake.erase("a.keyless", keys=[1], history="cut")
    from deltalake import write_deltalake

    write_deltalake(str(folder / "theirs"), pa.table({"id": [1, 2]}))
    lake.adopt("a.theirs", folder / "theirs", key="id")
    with pytest.raises(InvalidRequest, match="adopted"):
        lake.erase("a.theirs", keys=[1], history="cut")
    with pytest.raises(NotFound):
        lake.erase("a.nothing", keys=[1], history="cut")


def test_one_at_a_time_for_each_table(lake: Lake, customers: Table) -> None:
    first = lake.erase("shop.customers", keys=[42], history="cut")
    with pytest.raises(Conflict, match=first.id):
        lake.erase("shop.customers", keys=[1], history="cut")


# -- pins, tags, cancel


def test_a_tag_holds_it_up_until_it_is_gone(lake: Lake, customers: Table) -> None:
    customers.tag("audit")
    erasure = lake.erase("shop.customers", keys=[42], history="cut").wait()
    assert (erasure.state, len(erasure.blocked_by)) == ("blocked", 1)
    assert "tag audit" in erasure.blocked_by[0]
    assert customers.get(42) is None
    customers.untag("audit")
    assert erasure.wait().state == "done"
    assert left(lake) == []


def test_a_pin_holds_it_up_and_may_be_broken(lake: Lake, customers: Table) -> None:
    with customers.pin():
        held = lake.erase("shop.customers", keys=[42], history="cut").wait()
        assert held.state == "blocked"
        held.cancel()
        broken = lake.erase("shop.customers", keys=[42], history="cut", break_pins=True).wait()
    assert (held.state, broken.state) == ("cancelled", "done")
    assert left(lake) == []


def test_what_is_cancelled_keeps_no_needles_and_stays_deleted(lake: Lake, customers: Table) -> None:
    erasure = lake.erase("shop.customers", keys=[42], history="cut").cancel()
    assert erasure.state == "cancelled"
    assert customers.get(42) is None
    assert sorted(path.name for path in Path(erasure.receipt_path).parent.iterdir()) == ["state.json"]
    with pytest.raises(InvalidRequest, match="cancelled already"):
        erasure.cancel()
    with pytest.raises(NotFound, match="no receipt"):
        erasure.verify()


def test_maintenance_goes_on_with_it(lake: Lake, customers: Table) -> None:
    erasure = lake.erase("shop.customers", keys=[42], history="cut")
    report = lake.maintain()
    assert erasure.state == "done", report
    assert any(erasure.id in line for line in report.recovered)


# -- receipts


def test_a_receipt_is_verified_without_a_lake_and_tells_nobody_whom_it_is_about(lake: Lake, customers: Table) -> None:
    erasure = lake.erase("shop.customers", keys=[42], history="cut").wait()
    path = erasure.receipt_path
    assert erasure.receipt is not None
    key = erasure.receipt["public_key"]
    assert verify_receipt(path, key, key=42, salt=erasure.salt).ok
    assert verify_receipt(path, key, key=42, salt=erasure.salt).subject is True
    assert verify_receipt(path, key, key=43, salt=erasure.salt).subject is False
    assert verify_receipt(path, key, key=42, salt="00" * 32).subject is False
    assert verify_receipt(path).known_signer is None
    assert erasure.salt is not None
    assert places_of(Path(lake.path), erasure.salt) == []  # handed out once, kept nowhere


def test_a_tampered_receipt_is_told(lake: Lake, customers: Table, folder: Path) -> None:
    erasure = lake.erase("shop.customers", keys=[42], history="cut").wait()
    said = json.loads(Path(erasure.receipt_path).read_bytes())
    for field, value in (("keys", 2), ("requested_ms", 0), ("table", "shop.orders")):
        (folder / "changed.json").write_text(json.dumps({**said, field: value}))
        found = verify_receipt(folder / "changed.json", said["public_key"])
        assert (found.genuine, found.ok) == (False, False)
    (folder / "torn.json").write_bytes(Path(erasure.receipt_path).read_bytes()[:-20])
    with pytest.raises(Corruption, match="damaged"):
        verify_receipt(folder / "torn.json")


def test_a_receipt_of_another_lake_is_told(lake: Lake, customers: Table, folder: Path) -> None:
    erasure = lake.erase("shop.customers", keys=[42], history="cut").wait()
    with Lake(folder / "other", create=True, settings=SETTINGS) as other:
        table = other.create_table("shop.customers", COLUMNS, key="id")
        table.upsert(wanda())
        theirs = other.erase("shop.customers", keys=[42], history="cut").wait()
        assert theirs.receipt is not None
        found = verify_receipt(erasure.receipt_path, theirs.receipt["public_key"])
    assert (found.genuine, found.known_signer, found.ok) == (True, False, False)


def test_a_receipt_that_is_taken_out_of_the_chain_is_missed(lake: Lake, customers: Table) -> None:
    several = [lake.erase("shop.customers", keys=[id], history="cut").wait() for id in (42, 1, 2)]
    assert all(erasure.verify().ok for erasure in several)
    Path(several[1].receipt_path).unlink()
    assert several[0].id not in str(several[2].verify().problems)
    assert not several[2].verify().ok


def test_a_lost_signing_key_is_told_before_anything_is_done(lake: Lake, customers: Table) -> None:
    lake.erase("shop.customers", keys=[42], history="cut").wait()
    (Path(lake.path) / "_lithify/erasures/signing.key").unlink()
    seq = customers.snapshot().seq
    with pytest.raises(Unavailable, match="restore it"):
        lake.erase("shop.customers", keys=[1], history="cut")
    assert customers.snapshot().seq == seq


# -- processes

READER = """
import sys, time
from lithify import Lake, Settings
with Lake(sys.argv[1], create=False, settings=Settings(refresh_s=1)) as lake:
    print(lake.table("shop.customers").get(42)["name"], flush=True)
    sys.stdin.readline()
"""


def test_a_process_that_has_the_table_open_lets_go_and_says_so(lake: Lake, customers: Table) -> None:
    arguments = [sys.executable, "-c", READER, str(lake.path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "Wanda Needleman\n"
        receipt = lake.erase("shop.customers", keys=[42], history="cut").wait().receipt
        assert reader.stdin is not None
        reader.stdin.close()
    assert receipt is not None
    assert any(name.endswith(f"-{reader.pid}") for name in receipt["acknowledged"])
    assert receipt["not_acknowledged"] == []


@pytest.mark.parametrize("journal", ["jobs.jsonl", "pipelines.jsonl", "pipelines/people.jsonl"])
def test_journals_lose_what_quotes_an_erased_value(lake: Lake, customers: Table, journal: str) -> None:
    runtime = internals(lake).runtime
    written = Journal(runtime.store, runtime.control / "history" / journal)
    for said in (f"a record was set aside: {NEW}", "fine"):
        written.append({"pipeline": "people", "problem": said})
    erasure = lake.erase("shop.customers", keys=[42], history="cut").wait()
    assert erasure.state == "done"
    assert [line["problem"] for line in written.read()] == ["fine"]


def test_files_of_processes_that_ended_do_not_pile_up(lake: Lake, customers: Table) -> None:
    folder = Path(lake.path) / "_lithify/processes"
    gone = json.dumps({**json.loads(next(folder.iterdir()).read_text()), "pid": 2**22 + 1})
    for number in range(LEFT_MAX):
        (folder / f"{2**22 + 1}-{number}.jsonl").write_text(gone + "\n")
    with Lake(lake.path, settings=SETTINGS) as other:
        assert other.table("shop.customers").count() == 39
        assert len(list(folder.iterdir())) == 2
    assert len(list(folder.iterdir())) == 1


def test_records_that_were_set_aside_and_journals_lose_what_is_hers(lake: Lake, customers: Table, folder: Path) -> None:
    bad = ({"id": 42, "n": "no number"}, {"id": 9, "n": "none", "mail": NEW}, {"id": 10, "n": "none either"})
    lines = [json.dumps({"id": 8, "n": 8}), *map(json.dumps, bad)]
    (folder / "in.json").write_text("\n".join(lines))
    lake.ingest("shop.customers", [str(folder / "in.json")], on_bad_record="quarantine", missing="null")
    runtime = internals(lake).runtime
    journal = Journal(runtime.store, runtime.control / "history" / "jobs.jsonl")
    journal.append({"table": "shop.customers", "outcome": "failed", "reason": "key 42 is there twice"})
    journal.append({"table": "a.b", "outcome": "failed", "reason": f"{NEW} is there twice"})
    journal.append({"table": "a.b", "outcome": "done", "reason": "nothing of hers"})

    erasure = lake.erase("shop.customers", keys=[42], history="cut").wait()

    assert erasure.state == "done", (erasure.places, erasure.problems)
    (name,) = [found.name for found in customers.quarantine()]
    assert [json.loads(record.record)["id"] for record in customers.quarantined(name)] == [10]
    assert [line["reason"] for line in journal.read() if "reason" in line] == ["nothing of hers"]
    assert erasure.receipt is not None
    assert erasure.receipt["done"]["quarantine_deleted"] == 2
