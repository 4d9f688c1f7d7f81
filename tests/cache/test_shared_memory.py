"""Batches in memory that other processes map: the same rows there, few descriptors, and nothing kept too long."""

from __future__ import annotations

import datetime as dt
import gc
import os
import pickle
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext

from lithify.cache.shared_memory import Layout, MappedSegment, SharedMemory
from lithify.cache.strings import as_views

COLUMNS: dict[str, pa.Array] = {
    "numbers": pa.array([1, None, 3], pa.int64()),
    "small numbers": pa.array([1, 2, 3], pa.int8()),
    "booleans": pa.array([True, None, False]),
    "floats": pa.array([1.5, float("nan"), None]),
    "decimals": pa.array([Decimal("1.50"), None, Decimal("-2.25")], pa.decimal128(12, 2)),
    "texts": pa.array(["a", None, "longer than most"]),
    "bytes": pa.array([b"a", b"", None]),
    "dates": pa.array([dt.date(2026, 11, 15), None, dt.date(9999, 12, 31)]),
    "times": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
    "nothing": pa.nulls(3),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "dictionary with nulls": pa.array(["a", None, "a"]).dictionary_encode(),
    "views": pa.array(["a", None, "longer than twelve bytes"]).cast(pa.string_view()),
    "views without a buffer beside them": as_views(pa.array(["a", None, "b"])),
    "slice of views": pa.array(["x", "a", None, "longer than twelve bytes"]).cast(pa.string_view())[1:4],
    "lists": pa.array([[1, 2], None, []], pa.list_(pa.int64())),
    "structs": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    "maps": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "slice": pa.array(range(100))[50:53],
    "slice of texts": pa.array([f"text {n}" for n in range(100)])[50:53],
    "slice of booleans": pa.array([n % 3 == 0 for n in range(100)])[51:54],
    "slice of a dictionary": pa.array(["x", "a", None, "b"]).dictionary_encode()[1:4],
}


def put(memory: SharedMemory, values: pa.Array) -> Any:
    return memory.put(Layout(pa.record_batch([values], ["c"])))


@pytest.mark.parametrize("name", COLUMNS)
def test_every_kind_of_column_comes_back(name: str) -> None:
    memory = SharedMemory(2**20)
    shared = put(memory, COLUMNS[name])
    shared.batch.validate(full=True)
    assert str(shared.batch.column(0).to_pylist()) == str(COLUMNS[name].to_pylist())

    shape = pickle.loads(pickle.dumps(shared.shape))
    mapped = MappedSegment(memory.descriptor(shape.segment)).batch(shape, shared.batch.schema)

    mapped.validate(full=True)
    assert str(mapped.column(0).to_pylist()) == str(COLUMNS[name].to_pylist())
    assert mapped.schema == shared.batch.schema


def test_an_empty_batch() -> None:
    shared = put(SharedMemory(2**20), pa.array([], pa.string()))
    assert shared.batch.num_rows == 0


def test_another_process_may_read_and_not_write() -> None:
    memory = SharedMemory(2**20)
    shared = put(memory, pa.array(range(1_000)))
    fd = memory.descriptor(shared.shape.segment)
    program = (
        "import sys, os, pickle\nfrom lithify.cache.shared_memory import MappedSegment\n"
        "shape, schema = pickle.loads(bytes.fromhex(sys.argv[2]))\n"
        "print(sum(MappedSegment(int(sys.argv[1])).batch(shape, schema).column(0).to_pylist()))\n"
        "os.pwrite(int(sys.argv[1]), b'x', 0)"
    )
    told = pickle.dumps((shared.shape, shared.batch.schema)).hex()
    ran = subprocess.run(
        [sys.executable, "-c", program, str(fd), told], pass_fds=[fd], capture_output=True, text=True, timeout=120
    )
    assert ran.stdout.strip() == str(sum(range(1_000)))
    assert "Bad file descriptor" in ran.stderr


def test_numbers_lie_as_the_engine_wants_them() -> None:
    """What is not aligned, it copies."""
    batch = pa.record_batch({"s": ["x"] * 3, "d": COLUMNS["decimals"], "n": COLUMNS["small numbers"]})
    shared = SharedMemory(2**20).put(Layout(batch))
    addresses = [buffer.address for column in shared.batch.columns for buffer in column.buffers() if buffer is not None]
    assert all(address % 64 == 0 for address in addresses)


def test_what_is_read_stays_and_what_is_not_goes() -> None:
    memory = SharedMemory(2**24)
    shared = put(memory, pa.array(range(100_000)))
    read = put(memory, pa.array(range(1_000)))
    descriptor = memory.descriptor(shared.shape.segment)
    released: list[bool] = []
    third = memory.put(Layout(pa.record_batch([pa.array(range(500))], ["c"])), lambda: released.append(True))

    column = shared.batch.column(0).slice(10, 5)
    del shared
    gc.collect()
    assert column.to_pylist() == [10, 11, 12, 13, 14]  # a part of it is enough
    assert memory.bytes > 800_000

    del column, third
    gc.collect()
    assert memory.bytes < 20_000
    assert released == [True]
    assert os.fstat(descriptor).st_blocks * 512 < 20_000, "the system has its pages back"
    del read
    gc.collect()
    assert (memory.bytes, memory.segments) == (0, ())


def test_rows_that_the_engine_hands_on_stay() -> None:
    """DataFusion answers with the memory it was given, where it can."""
    memory = SharedMemory(2**20)
    context = SessionContext()
    context.register_record_batches("t", [[put(memory, pa.array(range(10_000))).batch]])
    answer = context.sql("select c from t").to_arrow_table()
    context.deregister_table("t")
    del context
    gc.collect()
    others = [put(memory, pa.array([7] * 10_000)) for _ in range(5)]
    assert answer.column(0).to_pylist() == list(range(10_000))
    assert others


def test_thousands_of_batches_hold_few_descriptors() -> None:
    before = len(os.listdir("/proc/self/fd"))
    memory = SharedMemory(2**24)
    batches = [put(memory, pa.array([n] * 10)) for n in range(6_000)]
    assert len(os.listdir("/proc/self/fd")) - before <= 3 * len(memory.segments) <= 9
    assert [shared.batch.column(0)[0].as_py() for shared in batches] == list(range(6_000))
    del batches
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_batch_larger_than_a_segment() -> None:
    memory = SharedMemory(2**16)
    shared = put(memory, pa.array(range(100_000)))
    assert shared.batch.column(0).to_pylist() == list(range(100_000))
