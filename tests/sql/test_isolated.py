"""Queries in processes of their own: they see what they should, may be killed at any moment, and leave nothing."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pickle
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake, Table
from lithify.cache.shared_memory import SharedMemory
from lithify.core.ops import Overlay
from lithify.core.predicates import And, Compare
from lithify.errors import (
    ComputeFailed,
    Forbidden,
    InvalidRequest,
    LimitExceeded,
    LithifyError,
    NotFound,
    OutOfResources,
)
from lithify.lake.internals import internals
from lithify.lake.queries import explain_query, run_query
from lithify.settings import load_settings
from lithify.sql.isolated import answers
from lithify.sql.isolated import pool as isolated
from lithify.sql.isolated.answers import HotStates, Told
from lithify.sql.isolated.channel import Channel, Gone, Untrusted
from lithify.sql.isolated.messages import Plan, Select
from lithify.sql.isolated.template import template
from lithify.sql.limits import Limits
from lithify.sql.query_run import QueryRun
from lithify.write.delete_where import delete_where
from support.folders import memory_folder

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("kind", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
)
ROWS = 3_000
WAIT_S = 60.0
# It reads no table and never ends.
ENDLESS = "select count(*) from range(1000000000000) where value % 7 = 3"
OVERFLOW = "interval " * 1_900 + "'1'"


def wait_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    raise AssertionError("it never came to that")


def row(id: int, kind: str | None = None) -> dict[str, Any]:
    return {
        "id": id,
        "amount": Decimal(id) / 4,
        "kind": kind or f"kind {id % 3}",
        "tags": None if id % 5 == 0 else [f"t{id % 2}"],
    }


@pytest.fixture(scope="module")
def hot() -> Iterator[Lake]:
    """a.t is pinned; a.cold lies in files, with changes that are pending."""
    with memory_folder() as folder, Lake(folder / "lake", settings=load_settings(cache_bytes_max=2**26)) as lake:
        for name in ("a.t", "a.cold"):
            table = lake.create_table(name, COLUMNS, key="id")
            table.upsert([row(id) for id in range(ROWS)])
            table.fold()
        table.upsert([row(7, "changed")])
        lake.cache.pin("a.t")
        yield lake


@pytest.fixture
def table(hot: Lake) -> Table:
    return hot.table("a.t")


# -- what it sees


@pytest.mark.parametrize(
    "query",
    [
        "select * from a.t order by id",
        "select kind, count(*) as n, sum(amount) as amount from a.t group by kind order by kind",
        "select id, amount from a.t where amount = 12.25",
        "select t.id, c.kind from a.t t join a.cold c on t.id = c.id where c.kind = 'changed'",
        "select * from a.cold where id between 5 and 9 order by id",
        "select count(*) as n, min(id) as low, max(id) as high from a.t",
        "select unnest(tags) as tag, count(*) as n from a.t group by 1 order by 1",
        "select upper(kind) as k from a.t where kind like '%1' limit 2",
        "select max(kind) as k from a.cold",
        "values (1), (2)",
    ],
)
def test_it_answers_as_this_process_does(hot: Lake, query: str) -> None:
    answer = hot.query(query)
    here = hot.sql(query)
    assert answer.rows.schema.equals(here.schema)
    assert answer.rows.to_pylist() == here.slice(0, 10_000).to_pylist()


CONDITIONS = {
    "bool": (pa.bool_(), True, "{} = true"),
    "int8": (pa.int8(), 3, "{} in (3, 4)"),
    "int64": (pa.int64(), 3, "{} between 2 and 4"),
    "float64": (pa.float64(), 1.5, "{} > 1.25"),
    "decimal": (pa.decimal128(12, 2), Decimal("1.25"), "{} = 1.25"),
    "string": (pa.string(), "ü", "{} like 'ü%'"),
    "binary": (pa.binary(), b"\x00\xff", "{} = X'00ff'"),
    "date": (pa.date32(), dt.date(2026, 11, 3), "{} < '2026-11-04'"),
    "timestamp": (pa.timestamp("us", "UTC"), dt.datetime(2026, 11, 3, tzinfo=dt.UTC), "{} < '2026-11-04'"),
    "timestamp, with its zone": (
        pa.timestamp("us", "UTC"),
        dt.datetime(2026, 11, 3, tzinfo=dt.UTC),
        "{} >= timestamp '2026-11-03 00:00:00' and {} < '2026-11-04T00:00:00+02:00'",
    ),
    "timestamp_ntz": (pa.timestamp("us"), dt.datetime(2026, 11, 3), "{} = '2026-11-03 00:00:00'"),
}


@pytest.mark.parametrize("kind", CONDITIONS)
def test_a_condition_on_a_value_of_any_type_is_told_to_the_service(hot: Lake, kind: str) -> None:
    """Its process says what it needs of a table; of what it says, the service takes plain values alone."""
    type_, value, condition = CONDITIONS[kind]
    name = f"a.of_{re.sub('[^a-z0-9]', '_', kind)}"
    table = hot.create_table(name, pa.schema([("id", pa.int64()), ("c", type_)]), key="id")
    table.upsert([{"id": 1, "c": value}, {"id": 2, "c": None}])
    table.fold()
    query = f"select id from {name} where {condition.replace('{}', 'c')}"
    assert hot.query(query).rows.to_pylist() == hot.sql(query).to_pylist() == [{"id": 1}]


def test_a_process_reads_hot_rows_where_they_lie(hot: Lake, table: Table) -> None:
    assert hot.query("select count(*) as n from a.t where kind <> 'none of them'").source == "hot"
    for turn in range(20):
        table.upsert([row(turn, f"turn {turn}")])
        answer = hot.query(f"select kind, (select count(*) from a.t) as n from a.t where id = {turn}")
        assert (answer.source, answer.rows.to_pylist()) == ("hot", [{"kind": f"turn {turn}", "n": ROWS}])


def test_hot_rows_that_one_query_did_not_look_at_are_there_for_the_next(hot: Lake, table: Table) -> None:
    """What a process was told ahead counts as told."""
    for turn in range(3):
        table.upsert([row(turn, f"looked at later {turn}")])
        table.fold()
        known = hot.query("select count(*) as n, max(id) as high from a.t")
        assert (known.source, known.rows.to_pylist()) == ("files", [{"n": ROWS, "high": ROWS - 1}]), "the index knows"
        answer = hot.query("select count(*) as n from a.t where kind like 'looked at later%'")
        assert (answer.source, answer.rows.to_pylist()) == ("hot", [{"n": turn + 1}])


def test_more_hot_tables_than_a_process_remembers(hot: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is told of many must not make it forget what it is told of others in the same breath."""
    monkeypatch.setattr(answers, "STATES_CACHED_MAX", 3)
    names = [f"many.t{number}" for number in range(7)]
    for number, name in enumerate(names):
        table = hot.create_table(name, COLUMNS, key="id")
        table.upsert([row(id) for id in range(number + 1)])
        table.fold()
        hot.cache.pin(name)

    def ask(numbers: Sequence[int]) -> None:
        parts = [
            f"select count(*) as n, sum(id) as s, '{names[number]}' as t from {names[number]}" for number in numbers
        ]
        answer = hot.query(" union all ".join(parts))
        assert sorted(answer.rows["n"].to_pylist()) == sorted(number + 1 for number in numbers)

    for numbers in ([0, 1, 2], [0, 1, 2, 3, 4, 5, 6], [5, 6, 0], [5, 6, 0, 1, 2, 3, 4], [6, 0, 5], [1, 2, 3, 6]):
        ask(numbers)


def test_many_pending_changes_are_handed_over_once(hot: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 20_000
    query = "select kind, count(*) as n, sum(amount) as s, max(tags) as t from a.pending {} group by 1 order by 1"
    pending = hot.create_table("a.pending", COLUMNS, key="id")
    pending.upsert([row(id) for id in range(count)])
    pending.fold()
    pending.upsert([row(id, "changed") for id in range(0, count, 2)])
    pending.delete(list(range(1, count, 4)))
    monkeypatch.setattr(hot._runtime.hot, "want", lambda *arguments: None)  # or it would soon be hot
    told, real = list[Plan](), Told._plan
    monkeypatch.setattr(Told, "_plan", lambda *arguments: (told.append(real(*arguments)), told[-1])[1])
    try:
        for where in ("where id > 10", "where id % 3 = 1", "where kind <> 'kind 1'"):
            text = query.format(where)
            assert hot.query(text).rows.to_pylist() == hot.sql(text).to_pylist()
        first, *others = [plan.pending for plan in told]
        assert first is not None
        assert all(state.blocks for state in first)
        assert [[state.blocks for state in states or ()] for states in others] == [[(), ()]] * 2
        assert all(len(pickle.dumps(plan)) < 2**16 for plan in told)
    finally:
        hot.drop_table("a.pending")


def test_pending_changes_are_in_shared_memory_as_long_as_anybody_keeps_them() -> None:
    memory = SharedMemory()
    states = HotStates(memory)
    rows = pa.table({"id": pa.array(range(50_000), pa.int64())})
    overlay, few = Overlay(rows, rows), Overlay(rows.slice(0, 10), rows.slice(0, 10))
    assert states.pending(few) is None
    assert states.pending(overlay) is states.pending(overlay)
    assert memory.bytes >= 2 * rows.nbytes
    del overlay
    assert memory.bytes == 0


def test_rows_that_are_read_stay_while_others_take_their_place(hot: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that nobody holds are used again; those of a query under way are not."""
    slow = "select sum(t.id) as s, count(distinct t.kind) as kinds from a.busy t cross join range(4000)"
    given, real = threading.Event(), Told._state
    monkeypatch.setattr(Told, "_state", lambda *arguments: (real(*arguments), given.set())[0])
    busy = hot.create_table("a.busy", COLUMNS, key="id")
    busy.upsert([row(id, "same") for id in range(ROWS)])
    hot.cache.pin("a.busy")
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(hot.query, slow)
            assert given.wait(WAIT_S)
            for turn in range(5):
                busy.upsert([row(id, "other") for id in range(turn, ROWS, 7)])
                hot.query("select count(*) from a.busy where id > 3")
            assert asked.result(WAIT_S).rows.to_pylist() == [{"s": 4_000 * sum(range(ROWS)), "kinds": 1}]
    finally:
        hot.drop_table("a.busy")


def test_tables_that_the_caller_may_not_read_are_not_there(hot: Lake) -> None:
    hot.query("select count(*) from a.t where id > 1")  # its process has seen it
    with pytest.raises(Forbidden, match=r"a\.t"):
        run_query(internals(hot), "select max(id) from a.t where id > 2", may_read=lambda name: name != "a.t")
    with pytest.raises(NotFound, match=r"a\.nothing"):
        hot.query("select * from a.nothing")


def test_queries_of_many_threads(hot: Lake) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(hot.query, f"select id, kind from a.t where id = {id}") for id in range(100, 160)]
        assert [found.result().rows.column("id").to_pylist() for found in asked] == [[id] for id in range(100, 160)]
    assert len(hot._serving.processes.pids()) <= 4


def test_a_large_answer(hot: Lake) -> None:
    query = "select a.id, b.value, repeat(a.kind, 20) as k from a.t a cross join range(100) b"
    answer = hot.query(query, rows_max=200_000)
    assert (answer.rows.num_rows, answer.cut) == (200_000, True)


def test_an_answer_beyond_the_memory_is_refused(hot: Lake) -> None:
    query = "select repeat(a.kind, 1000) as k from a.t a cross join range(100) b"
    with pytest.raises(LimitExceeded) as caught:
        hot.query(query, rows_max=1_000_000, memory_bytes_max=2**24)
    assert caught.value.details["limit"] == "memory"


# -- when it dies


@pytest.mark.parametrize("text", [f"select {OVERFLOW}", f"select id from a.t where {OVERFLOW} is null"])
def test_a_text_that_overflows_the_stack_is_that_querys_trouble(hot: Lake, text: str) -> None:
    with pytest.raises(InvalidRequest, match="too many parts"):
        hot.query(text)
    with hot._internals.limited(text) as within, pytest.raises(InvalidRequest, match="too many parts"):
        explain_query(internals(hot), text, within=within)
    assert hot.query("select 1 as n").rows.to_pylist() == [{"n": 1}]


def test_a_condition_that_overflows_the_stack_deletes_nothing(hot: Lake, table: Table) -> None:
    with hot._internals.limited(OVERFLOW) as within, pytest.raises(InvalidRequest, match="too many parts"):
        delete_where(internals(table), f"{OVERFLOW} is null", None, {}, within=within)
    assert hot.query("select count(*) as n from a.t").rows.to_pylist() == [{"n": ROWS}]


STAGES = {
    # The text does not show at once which table it names.
    "table": "select count(*) from (values (1)) v, a.t where id > 11",
    "hot": "select count(*) from (values (1)) v, a.t where id > 12",
    "plan": "select count(*) from a.cold where kind > 'a'",
    "summary": "select count(*) from a.cold",
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_process_that_is_killed_in_the_middle(hot: Lake, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, killed = Told.reply, list[int]()

    def reply(told: Told, question: str, about: Any, channel: Channel) -> None:
        if question == stage and not killed:
            (pid,) = [process.pid for process in hot._serving.processes._running]
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        real(told, question, about, channel)

    monkeypatch.setattr(Told, "reply", reply)
    hot.cache.evict("a.cold")  # what was read twice would be hot
    with pytest.raises(OutOfResources, match="process was killed"):
        hot.query(STAGES[stage])
    assert len(killed) == 1
    assert hot.query(STAGES[stage]).rows.num_rows == 1
    wait_for(lambda: not Path(f"/proc/{killed[0]}").exists())


def test_a_process_that_is_killed_while_it_answers(hot: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real, killed = isolated._Pieces.add, list[int]()

    def add(pieces: Any, piece: bytes) -> None:
        if not killed:
            (pid,) = [process.pid for process in hot._serving.processes._running]
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)
        real(pieces, piece)

    monkeypatch.setattr(isolated._Pieces, "add", add)
    query = "select a.id, b.value from a.t a cross join range(100) b"
    with pytest.raises(OutOfResources):
        hot.query(query, rows_max=300_000)
    assert hot.query(query, rows_max=300_000).rows.num_rows == 300_000


def test_processes_that_are_killed_while_they_wait(hot: Lake) -> None:
    hot.query("select 1")
    for pid in hot._serving.processes.pids():
        os.kill(pid, signal.SIGKILL)
    assert hot.query("select 2 as n").rows.to_pylist() == [{"n": 2}]


def test_the_template_is_started_again(hot: Lake) -> None:
    hot.query("select 1")
    pids = hot._serving.processes.pids()
    process = template()._process
    assert process is not None
    process.kill()
    process.wait()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert hot.query("select 3 as n").rows.to_pylist() == [{"n": 3}]


def test_nothing_outlives_the_service() -> None:
    """Killed as the kernel would: its query, the template and their folders are gone soon after."""
    program = (
        "import sys, tempfile, threading\n"
        "from lithify import Lake\n"
        "from lithify.sql.isolated.template import template\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "lake = Lake(sys.argv[1] + '/lake')\n"
        "lake.query('select 1')\n"
        "threading.Thread(target=lake.query, args=[sys.argv[2]]).start()\n"
        "while not lake._serving.processes._running: pass\n"
        "print(template()._process.pid, *lake._serving.processes.pids(), flush=True)\n"
    )
    with memory_folder() as folder:
        service = subprocess.Popen(
            [sys.executable, "-c", program, str(folder), ENDLESS], stdout=subprocess.PIPE, text=True
        )
        assert service.stdout is not None
        pids = [int(word) for word in service.stdout.readline().split()]
        assert len(pids) == 2
        service.kill()
        service.wait()
        service.stdout.close()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        wait_for(lambda: [path.name for path in folder.iterdir()] == ["lake"])


# -- what it may take


def test_the_template_has_one_thread(hot: Lake) -> None:
    hot.query("select 1")
    process = template()._process
    assert process is not None
    assert len(os.listdir(f"/proc/{process.pid}/task")) == 1


def test_the_kernel_knows_the_limits(hot: Lake) -> None:
    hot.query("select 1")
    told = [Path(f"/proc/{pid}/limits").read_text() for pid in hot._serving.processes.pids()]
    found = [dict(re.findall(r"^(Max [a-z ]+?)\s{2,}(\S+)", limits, re.MULTILINE)) for limits in told]
    # Those that wait for their first query have no bound on what it takes yet.
    soft = next(limits for limits in found if limits["Max data size"] != "unlimited")
    assert int(soft["Max stack size"]) <= 8 * 2**20
    assert int(soft["Max data size"]) <= 4 * 2**30
    assert int(soft["Max file size"]) <= 8 * 2**30
    assert int(soft["Max open files"]) <= 4_096
    assert int(soft["Max cpu time"]) < 1_000
    assert int(soft["Max core file size"]) == 0


def test_a_task_without_a_bound_has_not_that_of_the_one_before_it(hot: Lake) -> None:
    def cpu_bounds() -> list[str]:
        told = [Path(f"/proc/{pid}/limits").read_text() for pid in hot._serving.processes.pids()]
        return [word for limits in told for word in re.findall(r"^Max cpu time\s+(\S+)", limits, re.MULTILINE)]

    hot.query("select 10 as bounded", timeout_s=20)
    assert set(cpu_bounds()) != {"unlimited"}
    for _ in cpu_bounds():  # whichever process takes it
        hot._serving.run("select random()", lambda namespace, name: None, dict, QueryRun())
    warmest = hot._serving.processes._waiting[-1].pid
    assert re.search(r"Max cpu time\s+unlimited", Path(f"/proc/{warmest}/limits").read_text())


def test_a_process_that_talks_all_the_time_is_held_to_its_limits() -> None:
    """It is looked at when nothing comes; one that never falls silent has the same limits."""
    process, (ours, theirs) = isolated.QueryProcess({}), socket.socketpair()
    process._channel.close()
    process._channel = Channel(ours, trusting=False)
    talker = Channel(theirs, trusting=True)

    def talk() -> None:
        with contextlib.suppress(Gone):
            while True:
                talker.send(("piece", b""))

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        with pytest.raises(LimitExceeded, match="stopped after"):
            process.run(
                Select("select 1", None),
                Told(lambda namespace, name: None, dict, HotStates(SharedMemory())),
                QueryRun(Limits(timeout_s=0.5)),
                isolated.ProcessLimits(2**30, 2**30, 2**30, 2**30),
                lambda: None,
            )
    finally:
        process.end()
        theirs.shutdown(socket.SHUT_RDWR)
        talking.join(WAIT_S)
        theirs.close()


@pytest.mark.slow
def test_what_is_put_onto_disk_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    spilling = "select max(n) from (select row_number() over (order by value * 7919 % 1000003) n from range(300000000))"
    with memory_folder() as folder:
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        settings = load_settings(query_spill_bytes_max=2**26, query_timeout_s=120)
        with Lake(folder / "lake", settings=settings) as lake:
            with pytest.raises(LimitExceeded, match="query_spill_bytes_max") as caught:
                lake.query(spilling, memory_bytes_max=2**25)
            assert caught.value.details["limit"] == "disk"
        assert [path.name for path in folder.iterdir()] == ["lake"]


def test_memory_of_a_query_goes_with_its_process(hot: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "IDLE_BYTES_MAX", 0)
    hot.query("select 1")
    before = set(hot._serving.processes.pids())
    hot.query("select 2")
    # One of them has answered.
    wait_for(lambda: any(not Path(f"/proc/{pid}").exists() for pid in before))
    assert any(pid not in hot._serving.processes.pids() for pid in before)


# -- messages


def test_only_plain_values_are_taken_from_a_process() -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, ("true",)

    ours, theirs = socket.socketpair()
    wary, other = Channel(ours, trusting=False), Channel(theirs, trusting=True)
    predicate = And((Compare("a", "=", Decimal("1.5")), Compare("b", "<", None), Compare("c", "=", True)))
    for message in (("plan", (("a", "t"), predicate)), ("failed", LimitExceeded("too much", limit="time"))):
        other.send(message)
        received, _ = wary.receive()
        assert pickle.dumps(received) == pickle.dumps(message)
    for evil in (Evil(), os.system, eval, Path("/x")):
        other.send(("plan", evil))
        with pytest.raises(Gone, match="sent a"):
            wary.receive()
    wary.close()
    with pytest.raises(Gone):
        other.receive()
    other.close()


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """The service's end, and the other one as anybody may use it who is no query process any more."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours, trusting=False), theirs


def framed(payload: bytes, descriptors: int = 0) -> bytes:
    return struct.pack("<QB", len(payload), descriptors) + payload


@pytest.mark.parametrize("payload", [b"", b"\xff", pickle.dumps("x")[:-2], b"\x80\x05\x8e" + b"\xff" * 8 + b"."])
def test_what_is_no_message_is_told_as_such(ends: tuple[Channel, socket.socket], payload: bytes) -> None:
    wary, other = ends
    other.sendall(framed(payload))
    with pytest.raises(Untrusted, match="no message"):
        wary.receive()


def test_no_memory_is_taken_for_a_message_on_its_word_alone(ends: tuple[Channel, socket.socket]) -> None:
    wary, other = ends
    other.sendall(struct.pack("<QB", 2**50, 0))
    with pytest.raises(Untrusted, match="bytes"):
        wary.receive()


def test_descriptors_are_not_taken_from_a_process(ends: tuple[Channel, socket.socket]) -> None:
    """Each would stay open in the service."""
    wary, other = ends
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        socket.send_fds(other, [framed(pickle.dumps(("piece", b"")), 2)], [0, 1])
        with pytest.raises(Untrusted, match="descriptors"):
            wary.receive()
    assert len(os.listdir("/proc/self/fd")) == before


def errors_of_ours(root: type[LithifyError] = LithifyError) -> list[type[LithifyError]]:
    return [root, *(one for kind in root.__subclasses__() for one in errors_of_ours(kind))]


@pytest.mark.parametrize("kind", sorted(set(errors_of_ours()), key=str), ids=lambda kind: kind.__name__)
def test_an_error_of_the_service_comes_back_as_itself(
    ends: tuple[Channel, socket.socket], kind: type[LithifyError]
) -> None:
    """What the service answers may be an error of any room; the process that asked fails with it."""
    wary, other = ends
    Channel(other, trusting=True).send(("failed", kind("it failed", limit="time")))
    (_, error), _ = wary.receive()
    assert type(error) is kind
    assert (error.message, error.details) == ("it failed", {"limit": "time"})


OUTSIDE = [
    pa.StringArray.from_buffers(2, pa.py_buffer(struct.pack("<iii", 0, 2**30, 3)), pa.py_buffer(b"abc")),
    pa.StringArray.from_buffers(1, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xff")),
    pa.DictionaryArray.from_arrays(pa.array([7], pa.int32()), pa.array(["a"]), safe=False),
    pa.ListArray.from_arrays(pa.array([0, 9, 1], pa.int32()), pa.array([1])),
]


@pytest.mark.parametrize("values", OUTSIDE, ids=["string", "no UTF-8", "dictionary", "list"])
def test_rows_that_point_outside_of_themselves_are_not_taken(values: pa.Array) -> None:
    """Whoever spelled them would take the service down."""
    table, sink = pa.table({"a": values}), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    pieces = isolated._Pieces(2**20)
    pieces.add(sink.getvalue().to_pybytes())
    with pytest.raises(ComputeFailed, match="rows that are none"):
        pieces.rows()


def test_a_service_with_many_descriptors_answers() -> None:
    """Those from 1,024 on are unknown to `select`; a thousand clients, and every new one is."""
    program = (
        "import os, resource, sys\n"
        "from lithify import Lake\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))\n"
        "kept = [os.dup(0) for _ in range(1100)]\n"
        "with Lake(sys.argv[1]) as lake:\n"
        "    print([lake.query(f'select {n} as n').rows['n'][0].as_py() for n in range(3)])\n"
        "    os.kill(lake._serving.processes.pids()[0], 9)\n"
        "    print(lake.query('select 3 as n').rows['n'][0].as_py())\n"
    )
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 2_048:
        pytest.skip("this system gives no process so many descriptors")
    with memory_folder() as folder:
        command = [sys.executable, "-c", program, str(folder / "lake")]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["[0, 1, 2]", "3"], done.stderr


def test_without_descriptors_a_query_fails_and_the_next_does_not() -> None:
    """However many are left when they run out: it is said, and nothing stays behind."""
    program = (
        "import os, resource, sys, tempfile\n"
        "from lithify import Lake\n"
        "from lithify.errors import LithifyError\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "with Lake(sys.argv[1] + '/lake') as lake:\n"
        "    lake.query('select 1')\n"
        "    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "    for left in range(12):\n"
        "        for pid in lake._serving.processes.pids(): os.kill(pid, 9)\n"
        "        lake._serving.processes._later.wait()\n"
        "        kept = [os.dup(0)]\n"
        "        resource.setrlimit(resource.RLIMIT_NOFILE, (kept[0] + left + 1, hard))\n"
        "        try: lake.query(f'select {left} as other')\n"
        "        except LithifyError as error: print(type(error).__name__)\n"
        "        os.close(kept[0])\n"
        "        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n"
        "        assert lake.query(f'select {left} as n').rows['n'][0].as_py() == left\n"
        "print('left', [name for name in os.listdir(sys.argv[1]) if name != 'lake'])\n"
    )
    with memory_folder() as folder:
        command = [sys.executable, "-c", program, str(folder)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    said = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert said[-1] == "left []"
    assert set(said[:-1]) == {"Unavailable"}, done.stderr


class _Fake:
    """As much of a process as its token's share is told by."""

    def __init__(self, owner: str | None, memory: int, disk: int = 0) -> None:
        self.owner, self.memory, self.disk = owner, memory, disk


def test_the_largest_query_of_a_token_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated.QueryProcess, "own_bytes", lambda process: process.memory)
    monkeypatch.setattr(isolated.QueryProcess, "spilled_bytes", lambda process: process.disk)
    limits = isolated.ProcessLimits(100, 100, 150, 150)
    processes = isolated.QueryProcesses(SharedMemory(), 1)

    def look(running: list[_Fake]) -> list[str]:
        said = []
        processes._running = set(running)  # type: ignore[assignment]
        for one in running:
            try:
                processes._others(one, limits)  # type: ignore[arg-type]
                said.append("")
            except LimitExceeded as error:
                said.append(str(error.details["limit"]))
        processes._running = set()
        return said

    assert look([_Fake("a", 90), _Fake("a", 80), _Fake("b", 90)]) == ["memory", "", ""]
    assert look([_Fake("a", 1, 60), _Fake("a", 1, 99), _Fake("b", 1, 99)]) == ["", "disk", ""]
    assert look([_Fake("a", 70), _Fake("a", 70), _Fake("b", 140)]) == ["", "", ""]
    assert look([_Fake(None, 90), _Fake(None, 90)]) == ["", ""]
    processes.close()
