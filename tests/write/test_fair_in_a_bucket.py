"""Processes that write one table of a lake in a bucket at once: each comes to it, and nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake
from support import children, racers
from support.fault_proxy import FaultProxy

pytestmark = [pytest.mark.bucket, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
WRITERS, BATCHES = 6, 24


def test_all_come_to_it_while_all_write(proxy: FaultProxy, address: str, folder: Path) -> None:
    with Lake(address, create=True) as lake:
        lake.create_table("a.t", SCHEMA)
    proxy.delay_s = 0.01
    ready, go, results = children.queue(), children.event(), children.queue()
    writing = [
        children.start(racers.write_batches, address, number, BATCHES, go, results, ready, scratch=folder)
        for number in range(WRITERS)
    ]
    for _ in writing:
        ready.get(timeout=children.WAIT_S_MAX)
    go.set()
    answers = [results.get(timeout=children.WAIT_S_MAX) for _ in range(WRITERS * BATCHES)]
    assert [children.finish(child) for child in writing] == [0] * WRITERS
    proxy.delay_s = 0

    first, end = WRITERS + 1, WRITERS + 1 + WRITERS * BATCHES
    assert sorted(seq for seq, _, _ in answers) == list(range(first, end))
    with Lake(address) as lake:
        rows = [row for row in lake.table("a.t").changes(since=0).to_pylist() if row["_seq"] >= first]
    assert sorted(row["id"] for row in rows) == sorted(
        i for writer in range(WRITERS) for batch in range(BATCHES) for i in racers.ids_of(writer, batch)
    )
    by_seq, shares = {row["_seq"]: row["v"] for row in rows}, Counter[str]()
    for seq in range(first, end):
        shares[by_seq[seq]] += 1
        if shares[by_seq[seq]] == BATCHES:
            break
    # About one batch behind each other; a machine with much to do may let one begin late. Without turns some get a few.
    assert min(shares[str(writer)] for writer in range(WRITERS)) >= BATCHES * 0.4, f"all come to it: {shares}"
