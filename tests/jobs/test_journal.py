"""The journal of maintenance: bounded, shared, and readable whatever a crash left of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lithify.files.local import LocalStorage
from lithify.jobs.journal import Journal


def test_the_newest_records_come_first(folder: Path) -> None:
    journal = Journal(LocalStorage(), folder / "history" / "jobs.jsonl")
    for number in range(5):
        journal.append({"n": number})

    assert [record["n"] for record in journal.read()] == [4, 3, 2, 1, 0]
    assert [record["n"] for record in journal.read(2)] == [4, 3]


def test_a_journal_that_is_not_there_is_empty(folder: Path) -> None:
    assert Journal(LocalStorage(), folder / "none.jsonl").read() == []


def test_a_line_that_was_cut_off_costs_only_itself(folder: Path) -> None:
    path = folder / "jobs.jsonl"
    journal = Journal(LocalStorage(), path)
    journal.append({"n": 1})
    path.write_bytes(path.read_bytes() + b'{"n": 2, "ta')
    journal.append({"n": 3})

    assert [record["n"] for record in journal.read()] == [3, 1]


def test_it_does_not_grow_without_end(folder: Path) -> None:
    path = folder / "jobs.jsonl"
    journal = Journal(LocalStorage(), path, bytes_max=2_000)
    for number in range(1_000):
        journal.append({"n": number})

    assert path.stat().st_size <= 2_100
    found = [record["n"] for record in journal.read()]
    assert found == list(range(999, 999 - len(found), -1))


def test_many_may_append_at_once(folder: Path) -> None:
    journal = Journal(LocalStorage(), folder / "jobs.jsonl")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: journal.append({"n": n, "text": "x" * 500}), range(200)))

    assert sorted(record["n"] for record in journal.read()) == list(range(200))
