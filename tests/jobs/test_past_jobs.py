"""The journal of maintenance: bounded, shared, and readable whatever a crash left of it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lithify.files.local import LocalStorage
from lithify.files.storage import Storage
from lithify.jobs.past_jobs import SWAPPED_BYTES_MAX, Journal
from support.bucket import Bucket

KINDS: dict[str, Callable[[Path], Storage]] = {"local": lambda folder: LocalStorage(), "bucket": Bucket}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, folder: Path) -> Storage:
    return KINDS[request.param](folder)


def test_the_newest_records_come_first(folder: Path, store: Storage) -> None:
    journal = Journal(store, folder / "history" / "jobs.jsonl")
    for number in range(5):
        journal.append({"n": number})

    assert [record["n"] for record in journal.read()] == [4, 3, 2, 1, 0]
    assert [record["n"] for record in journal.read(2)] == [4, 3]


def test_a_journal_that_is_not_there_is_empty(folder: Path, store: Storage) -> None:
    assert Journal(store, folder / "none.jsonl").read() == []


def test_a_line_that_was_cut_off_costs_only_itself(folder: Path) -> None:
    path = folder / "jobs.jsonl"
    journal = Journal(LocalStorage(), path)
    journal.append({"n": 1})
    path.write_bytes(path.read_bytes() + b'{"n": 2, "ta')
    journal.append({"n": 3})

    assert [record["n"] for record in journal.read()] == [3, 1]


def test_it_does_not_grow_without_end(folder: Path, store: Storage) -> None:
    path = folder / "jobs.jsonl"
    journal = Journal(store, path, bytes_max=2_000)
    for number in range(1_000):
        journal.append({"n": number})

    assert store.size(path) <= 2_100
    found = [record["n"] for record in journal.read()]
    assert found == list(range(999, 999 - len(found), -1))


def test_many_may_append_at_once(folder: Path, store: Storage) -> None:
    journal = Journal(store, folder / "jobs.jsonl")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: journal.append({"n": n, "text": "x" * 500}), range(200)))

    assert sorted(record["n"] for record in journal.read()) == list(range(200))


def test_what_is_written_as_a_whole_each_time_is_kept_small(folder: Path) -> None:
    bucket = Bucket(folder)
    journal = Journal(bucket, folder / "jobs.jsonl")
    for number in range(12):
        journal.append({"n": number, "text": "x" * (SWAPPED_BYTES_MAX // 10)})
    assert bucket.size(folder / "jobs.jsonl") <= SWAPPED_BYTES_MAX
    assert journal.read(1)[0]["n"] == 11
