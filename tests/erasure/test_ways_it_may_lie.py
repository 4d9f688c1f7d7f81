"""Ways in which an erasure may claim too much, each by its name, and where values stand. Shown first: that there was
something to be found.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake, Table
from lithify.erasure.erasure import Erasure
from lithify.erasure.finder import Finder
from lithify.erasure.key_rows import Keys
from lithify.erasure.needles import Needle, Spelling, needles_of, spellings
from lithify.erasure.scan import Found, scan
from lithify.jobs.past_jobs import Journal
from lithify.lake.internals import internals
from support.erasures import COLUMNS, NEW, OLD, places_of, wanda

LONG = "a.very.long.address.of.wanda.that.bounds.of.statistics.cut.short@mail.example.org"


def erased(lake: Lake) -> Erasure:
    found = lake.erase("shop.customers", keys=[42]).wait()
    assert isinstance(found, Erasure)
    return found


def scanned(lake: Lake, *rows: dict[str, Any]) -> Found:
    keys = Keys(["id"], pa.table({"id": pa.array([42], pa.int64())}))
    root = Path(lake.path)
    return scan([root], root / "shop/customers", keys, needles_of([{"id": 42}, *rows]))


def methods_in(found: Found, part: str) -> set[str]:
    return {place["method"] for place in found.places if part in place["path"]}


# -- where values stand


def test_the_scan_finds_what_the_real_code_wrote_in_every_place(lake: Lake, customers: Table, folder: Path) -> None:
    customers.tag("audit")
    customers.check_index()
    (folder / "in.json").write_text(f'{{"id": 8, "n": 8}}\n{{"id": "no number", "mail": "{NEW}"}}\n')
    lake.ingest("shop.customers", [str(folder / "in.json")], on_bad_record="quarantine", missing="null")
    runtime = internals(lake).runtime
    Journal(runtime.store, runtime.control / "history" / "jobs.jsonl").append({"table": "a.b", "reason": f"bad: {NEW}"})
    for number in range(50, 75):  # until there is a checkpoint
        customers.upsert([{"id": number, "name": "x", "mail": f"{number}@example.org", "n": number}])
    customers.delete([42])

    found = scanned(lake, *wanda(), *wanda(OLD))

    expected = {
        "base/fold-": "cells",
        "changes/write-": "cells",
        "changes/_delta_log/0": "bytes",
        "base/_delta_log/0": "bytes",
        ".checkpoint.parquet": "cells",
        "index/": "bytes",
        "quarantine/": "bytes",
        "history/jobs.jsonl": "bytes",
        "tags/": "bytes",
    }
    for part, method in expected.items():
        assert method in methods_in(found, part), (part, sorted({place["path"] for place in found.places}))


def test_short_values_are_found_by_column_in_what_logs_state(lake: Lake, customers: Table) -> None:
    """A number of two digits stands everywhere; in the bounds of its column it says something."""
    customers.upsert([{"id": 42, "name": "W", "mail": "w@x", "n": 998}])
    found = scanned(lake, {"n": 998})
    assert {place["column"] for place in found.places if "_delta_log" in place["path"]} == {"n", "id"}
    assert erased(lake).state == "done"
    assert scanned(lake, {"n": 998}).clean


# -- the ways


def test_copied_by_a_compaction_between_hide_and_fold(lake: Lake, customers: Table) -> None:
    erasure = lake.erase("shop.customers", keys=[42])
    customers.optimize(by=["n"])
    assert erasure.wait().state == "done"
    assert places_of(Path(lake.path), NEW, OLD, "Wanda") == []


def test_a_second_hard_link_in_the_lake(lake: Lake, customers: Table) -> None:
    folder = Path(lake.path) / "shop/customers/base"
    (file,) = (path for path in folder.rglob("part-*.parquet") if 42 in pq.read_table(path)["id"].to_pylist())
    os.link(file, folder / "kept-by-hand.parquet")
    found = erased(lake)
    assert (found.state, found.receipt) == ("leftover", None)
    assert {place["path"] for place in found.places} == {"shop/customers/base/kept-by-hand.parquet"}
    (folder / "kept-by-hand.parquet").unlink()
    assert found.wait().state == "done"


def test_cut_text_bounds(lake: Lake, customers: Table) -> None:
    customers.upsert(wanda(LONG))
    customers.fold()
    assert len(places_of(Path(lake.path), LONG[:24])) > 1
    assert erased(lake).state == "done"
    assert places_of(Path(lake.path), LONG[:24]) == []


def test_dead_blocks_of_a_sidecar(lake: Lake, customers: Table) -> None:
    customers.build_index()
    customers.fold()
    assert any("index/" in path for path in places_of(Path(lake.path), "wanda"))
    assert erased(lake).state == "done"
    assert customers.get(39) is not None
    assert not any("index/" in path for path in places_of(Path(lake.path), "wanda"))


def test_a_batch_id_that_names_her(lake: Lake, customers: Table) -> None:
    """It is remembered, so that the batch is written once: the erasure does not claim that it is gone."""
    customers.upsert([{"id": 90, "name": "x", "mail": "x@example.org", "n": 1}], batch_id=f"signup-{NEW}")
    found = erased(lake)
    assert found.state == "leftover"
    assert all("_delta_log" in place["path"] for place in found.places)


def test_a_dropped_table_of_the_same_name(lake: Lake, customers: Table) -> None:
    """Its logs are kept for their version numbers, with bounds of its rows: the new table's erasure cuts them, too."""
    lake.drop_table("shop.customers")
    assert any("_delta_log" in path for path in places_of(Path(lake.path), "wanda"))
    lake.create_table("shop.customers", COLUMNS, key="id")
    assert erased(lake).state == "done"
    assert places_of(Path(lake.path), "wanda") == []


def test_another_table_that_was_dropped(lake: Lake, customers: Table) -> None:
    other = lake.create_table("shop.former", COLUMNS, key="id")
    other.upsert(wanda())
    lake.drop_table("shop.former")
    found = erased(lake)
    assert found.state == "leftover"
    assert all(place["path"].startswith("shop/former/") for place in found.places)


def test_the_same_value_in_another_table(lake: Lake, customers: Table) -> None:
    orders = lake.create_table("shop.orders", pa.schema([("id", pa.int64()), ("mail", pa.string())]), key="id")
    orders.upsert([{"id": 1, "mail": NEW}])
    found = erased(lake)
    assert found.state == "leftover"
    assert all(place["path"].startswith("shop/orders/") for place in found.places)
    lake.erase("shop.orders", keys=[1]).wait()
    assert found.wait().state == "done"


def test_a_link_that_is_not_followed(lake: Lake, customers: Table, folder: Path) -> None:
    (folder / "elsewhere").write_text(NEW)
    (Path(lake.path) / "link").symlink_to(folder / "elsewhere")
    found = erased(lake)
    assert (found.state, len(found.problems)) == ("leftover", 1)


def test_a_file_that_cannot_be_decoded(lake: Lake, customers: Table) -> None:
    (Path(lake.path) / "shop/customers/base/torn.parquet").write_bytes(b"PAR1 and nothing more")
    found = erased(lake)
    assert (found.state, found.receipt) == ("leftover", None)
    assert "torn.parquet" in found.problems[0]


def test_inserted_again_after_it_was_hidden(lake: Lake, customers: Table) -> None:
    """E8: a new row, which stays, and the receipt says so."""
    erasure = lake.erase("shop.customers", keys=[42])
    customers.upsert(wanda("wanda.again@example.org"))
    assert erasure.wait().state == "done", (erasure.places, erasure.problems)
    assert erasure.receipt is not None
    assert erasure.receipt["present_again"] == 1
    assert customers.get(42)["mail"] == "wanda.again@example.org"
    assert places_of(Path(lake.path), NEW, OLD) == []


def test_dictionary_entries_that_no_row_uses(lake: Lake, customers: Table) -> None:
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array(["nobody", NEW]))
    other = lake.create_table("shop.other", COLUMNS, key="id")
    file = Path(other.base_path) / "left.parquet"
    pq.write_table(pa.table({"mail": unused}), file, compression="zstd", write_statistics=False, store_schema=False)
    if NEW in pq.read_table(file)["mail"].to_pylist() or not places_of(file.parent, NEW):
        pytest.skip("this writer leaves unused entries out")
    found = methods_in(scanned(lake, *wanda()), "left.parquet")
    assert "pages" in found
    assert "cells" not in found


@pytest.mark.parametrize(
    "value",
    [
        "wanda@example.org",
        "Größe Müller",
        {"inner": "wanda@example.org"},
        ["wanda@example.org"],
        [("mail", "wanda@example.org")],
        b"wanda@example.org",
        5_000_000_000,
        decimal.Decimal("1234567.89"),
        dt.datetime(2026, 11, 19, 6, 30, 1),
    ],
)
def test_values_of_any_kind_become_needles(value: object) -> None:
    (needle, *_) = sorted(needles_of([{"c": value}]), key=lambda found: -len(found.text))
    assert spellings(needle)


@pytest.mark.parametrize(
    "written",
    [
        "wanda@example.org".encode("utf-16-le"),
        b"WANDA@EXAMPLE.ORG",
        b'{"m": "wanda@example.org"}',
        b"to=wanda%40example.org&x",
        b"eyJtIjogIndhbmRhQGV4YW1wbGUub3JnIn0=",
        b"wanda@example.org".hex().encode(),
    ],
)
def test_spellings_are_found(written: bytes) -> None:
    assert Finder(spellings(Needle("mail", "wanda@example.org"))).found(b"before " + written + b" behind")


def test_unicode_forms(lake: Lake) -> None:
    composed, taken_apart = "M\u00fcller-Wanda", "Mu\u0308ller-Wanda"
    assert Finder(spellings(Needle("name", composed))).found(taken_apart.encode())
    assert Finder(spellings(Needle("name", taken_apart))).found(composed.encode())


def test_many_are_found_as_few_are() -> None:
    many = [Spelling(f"needle-{number:05d}".encode()) for number in range(500)]
    data = b"x" * 1000 + b"needle-00321" + b"needle-x" + b"needle-00007"
    assert {found.data for found in Finder(many).found(data)} == {b"needle-00321", b"needle-00007"}
    assert Finder(many[:3]).found(data) == set()


def test_what_other_rows_share_is_not_looked_for_and_is_counted(lake: Lake, customers: Table) -> None:
    customers.upsert([{**wanda()[0], "id": 77, "n": 5}])  # the same name and mail
    found = erased(lake)
    assert found.state == "done", found.places
    assert found.receipt is not None
    assert found.receipt["scan"]["shared"] >= 2
    assert customers.get(77) is not None


def test_a_receipt_holds_nothing_of_the_rows(lake: Lake, customers: Table) -> None:
    receipt = json.dumps(erased(lake).receipt)
    assert not any(text in receipt for text in (NEW, OLD, "Wanda", "77777"))


def test_needles_lie_encrypted_while_it_runs(lake: Lake, customers: Table) -> None:
    """E6."""
    erasure = lake.erase("shop.customers", keys=[42])
    folder = Path(erasure.receipt_path).parent
    assert {path.name for path in folder.iterdir()} == {"state.json", "needles.key", "needles.sealed"}
    assert places_of(folder, NEW, "Wanda") == []
    erasure.wait()
    assert {path.name for path in folder.iterdir()} == {"state.json", "plan.json", "receipt.json"}


def test_a_random_history(lake: Lake) -> None:
    """The independent look agrees, and what is left is the model without the row."""
    import random

    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance, model = random.Random(seed), dict[int, str]()
    table = lake.create_table("shop.customers", COLUMNS, key="id")
    for number in range(14):
        ids = chance.sample(range(30, 50), 6)
        match chance.choice(["upsert", "upsert", "delete", "fold", "optimize"]):
            case "upsert":
                rows = [{"id": i, "name": f"person {i}", "mail": f"p{i}.v{number}@example.org", "n": i} for i in ids]
                table.upsert(rows)
                model |= {row["id"]: row["mail"] for row in rows}
            case "delete":
                table.delete(ids)
                model = {id: mail for id, mail in model.items() if id not in ids}
            case "fold":
                table.fold()
            case _:
                table.optimize(by=["n"])
    table.upsert(wanda())
    assert erased(lake).state == "done"
    assert {row["id"]: row["mail"] for row in table.to_arrow().to_pylist()} == {
        id: mail for id, mail in model.items() if id != 42
    }
    assert places_of(Path(lake.path), "p42.v", NEW, "person 42") == []
