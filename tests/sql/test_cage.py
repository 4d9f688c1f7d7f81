"""What a query process can touch: the files of tables that its caller may read, and nothing else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lithify import Lake
from lithify.errors import Forbidden, LithifyError
from lithify.lake.internals import internals
from lithify.lake.queries import run_query
from lithify.settings import load_settings
from lithify.sql.isolated import cage, landlock
from lithify.sql.isolated.cage import TABLES_KNOWN_MAX, Folder, Views, fits
from lithify.tables.handles import Handles
from support.folders import copied, memory_folder

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
caged = pytest.mark.skipif(not landlock.abi(), reason="the kernel has no Landlock")


def rows(count: int) -> pa.Table:
    return pa.table({"id": range(count), "v": [f"v{n}" for n in range(count)]}, schema=COLUMNS)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    """a.t and a.secret, both in files, one change of each pending."""
    with Lake(folder / "lake", settings=load_settings(cache_bytes_max=0, allowed_paths=[folder / "elsewhere"])) as lake:
        for name in ("a.t", "a.secret"):
            table = lake.create_table(name, COLUMNS, key="id")
            table.upsert(rows(1_000))
            table.fold()
            table.upsert([{"id": 3, "v": "changed"}])
        yield lake


# -- the cage itself

PROBE = """
import json, os, socket, sys
from lithify.sql.isolated import cage
scratch, table, attempts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
cage.enter(scratch, [table])
found = {}
for name, code in attempts.items():
    try:
        exec(code)
        found[name] = "done"
    except OSError as error:
        found[name] = type(error).__name__
print(json.dumps(found))
"""


def tried(scratch: Path, table: Path, attempts: dict[str, str]) -> dict[str, str]:
    """What came of each attempt in a process that is in a cage."""
    arguments = [sys.executable, "-P", "-c", PROBE, str(scratch), str(table), json.dumps(attempts)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture
def three_folders(folder: Path) -> tuple[Path, Path, Path]:
    scratch, table, other = folder / "scratch", folder / "lake" / "a" / "t", folder / "lake" / "_lithify"
    for each in (scratch, table, other):
        each.mkdir(parents=True)
        (each / "file").write_text("x")
    return scratch, table, other


@caged
def test_in_the_cage_nothing_else_can_be_touched(three_folders: tuple[Path, Path, Path]) -> None:
    scratch, table, other = three_folders
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0lithify-test-{os.getpid()}")
        abstract.listen()
        port, name = server.getsockname()[1], abstract.getsockname()
        attempts = {
            "read a file of the lake": f"open({str(other / 'file')!r})",
            "list a folder of the lake": f"os.listdir({str(other)!r})",
            "list the lake": f"os.listdir({str(table.parent.parent)!r})",
            "read a file of the system": "open('/etc/passwd')",
            "read a file of the user": f"open({str(Path.home())!r} + '/.profile', 'a+')",
            "read it by a link": f"os.symlink({str(other / 'file')!r}, scratch + '/l'); open(scratch + '/l')",
            "give it another name": f"os.link({str(other / 'file')!r}, scratch + '/h')",
            "read what others do": f"open('/proc/{os.getpid()}/environ')",
            "write to a table": f"open({str(table / 'file')!r}, 'r+')",
            "make a file in a table": f"open({str(table / 'new')!r}, 'w')",
            "delete a file of a table": f"os.unlink({str(table / 'file')!r})",
            "rename a file of a table": f"os.rename({str(table / 'file')!r}, {str(table / 'n')!r})",
            "cut a file of a table": f"os.truncate({str(table / 'file')!r}, 0)",
            "make a file beside": f"open({str(scratch.parent / 'new')!r}, 'w')",
            "make a folder beside": f"os.mkdir({str(scratch.parent / 'd')!r})",
            "run a program": "os.posix_spawn('/bin/true', ['true'], {})",
        }
        if landlock.abi() >= 4:
            attempts |= {
                "connect": f"socket.create_connection(('127.0.0.1', {port}), 5)",
                "listen": "socket.create_server(('127.0.0.1', 0))",
            }
        if landlock.abi() >= 6:
            attempts |= {
                "connect without a path": f"socket.socket(socket.AF_UNIX).connect({name!r})",
                "send a signal": "os.kill(os.getppid(), 0)",
            }
        found = tried(scratch, table, attempts)

    assert [name for name, outcome in found.items() if outcome == "done"] == []
    assert (table / "file").read_text() == "x"


@caged
def test_in_the_cage_work_goes_on(three_folders: tuple[Path, Path, Path]) -> None:
    scratch, table, _ = three_folders
    attempts = {
        "read a table": f"assert open({str(table / 'file')!r}).read() == 'x'",
        "list it": f"assert os.listdir({str(table)!r}) == ['file']",
        "write": "open(scratch + '/new', 'w').write('y'); assert open(scratch + '/new').read() == 'y'",
        "make and remove": "os.mkdir(scratch + '/d'); os.rename(scratch + '/new', scratch + '/d/n'); "
        "os.unlink(scratch + '/d/n'); os.rmdir(scratch + '/d')",
        "follow a link": f"os.symlink({str(table / 'file')!r}, scratch + '/l'); open(scratch + '/l').close()",
        "import": "import pyarrow.dataset, graphlib, lithify.index.reader",
        "time zones": "import zoneinfo; zoneinfo.ZoneInfo('Europe/Berlin')",
        "nothing": "open('/dev/null', 'w').write('x')",
        "chance": "open('/dev/urandom', 'rb').read(1)",
        "itself": "open('/proc/self/statm').read()",
    }

    found = tried(scratch, table, attempts)

    assert {name: outcome for name, outcome in found.items() if outcome != "done"} == {}


# -- queries in it

QUERIES = [
    "select count(*) as n, max(v) as v from a.t where v <> 'none'",
    "select * from a.t where id between 2 and 4 order by id",
    "select t.v, s.v as w from a.t t join a.secret s on t.id = s.id where t.id = 3",
    "select arrow_typeof(timestamp '2026-07-01T00:00:00' at time zone 'Europe/Berlin') as t from a.t limit 1",
    "select n.id from (values (7)) as n(id) where n.id in (select id from a.t)",
]


@caged
@pytest.mark.parametrize("query", QUERIES)
def test_queries_are_answered_as_ever(lake: Lake, query: str) -> None:
    assert lake.query(query).rows.to_pylist() == lake.sql(query).to_pylist()


@caged
def test_secrets_of_the_environment_stay_in_the_service(folder: Path) -> None:
    """The template is started by the first query of a process, so this takes one of its own."""
    program = (
        "import sys, pathlib, lithify, pyarrow as pa\n"
        "with lithify.Lake(sys.argv[1]) as lake:\n"
        "    lake.query('select 1')\n"
        "    pids = lake._serving.processes.pids()\n"
        "    known = b''.join(pathlib.Path(f'/proc/{pid}/environ').read_bytes() for pid in pids)\n"
        "    print(b'hush-hush' in known, len(pids))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder / "lake")],
        env={**os.environ, "LITHIFY_TOKEN": "hush-hush", "AWS_SECRET_ACCESS_KEY": "hush-hush"},
        capture_output=True,
        text=True,
        check=True,
    )
    found, count = done.stdout.split()
    assert (found, int(count) > 0) == ("False", True)


def test_hot_tables(folder: Path) -> None:
    with Lake(folder / "lake", settings=load_settings(cache_bytes_max=2**26)) as lake:
        lake.create_table("a.t", COLUMNS, key="id").upsert(rows(1_000))
        lake.cache.pin("a.t")
        answer = lake.query("select sum(id) as s from a.t where v <> 'none'")
    assert (answer.source, answer.rows.to_pylist()) == ("hot", [{"s": 499_500}])


@caged
def test_an_adopted_table_that_lies_elsewhere(lake: Lake, folder: Path) -> None:
    (folder / "elsewhere" / "d").mkdir(parents=True)
    pq.write_table(rows(500), folder / "elsewhere" / "d" / "part.parquet")
    lake.query("select 1 as n")
    other = pa.table({"id": range(500, 700), "v": ["x"] * 200}, schema=COLUMNS)
    from deltalake import write_deltalake

    write_deltalake(str(folder / "elsewhere" / "delta"), other)
    lake.adopt("b.delta", folder / "elsewhere" / "delta", key="id")
    lake.adopt("b.parquet", folder / "elsewhere" / "d", key="id")

    found = lake.query("select (select count(*) from b.delta where v = 'x') as d, count(v) as p from b.parquet").rows

    assert found.to_pylist() == [{"d": 200, "p": 500}]


@caged
def test_data_files_that_are_links_to_an_allowed_place(lake: Lake, folder: Path) -> None:
    copied(folder / "lake", folder / "copy")
    (file,) = (folder / "copy" / "a" / "t" / "base").rglob("*.parquet")
    (folder / "elsewhere" / "moved").mkdir(parents=True)
    target = folder / "elsewhere" / "moved" / "data.parquet"
    file.rename(target)
    file.symlink_to(target)
    with Lake(folder / "copy", settings=lake._runtime.settings) as again:
        assert again.query("select count(v) as n from a.t where v <> 'none'").rows.to_pylist() == [{"n": 1_000}]


@caged
def test_what_does_not_fit_the_memory(lake: Lake) -> None:
    numbered = "select row_number() over (order by value * 7919 % 1000003) n from range(2000000)"
    assert lake.query(f"select max(n) as n from ({numbered})", memory_bytes_max=2**25).rows.to_pylist() == [
        {"n": 2_000_000}
    ]


@caged
def test_the_kernel_refuses_files_that_are_in_no_view(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the engine were tricked into opening them."""
    real = Handles.data_folders.fget
    assert real is not None
    monkeypatch.setattr(Handles, "data_folders", property(lambda handles: real(handles)[:1]))

    with pytest.raises(LithifyError, match="ermission"):
        lake.query("select count(v) from a.t where v <> 'none'")

    monkeypatch.undo()
    assert lake.query("select count(v) as n from a.t where v <> 'none'").rows.to_pylist() == [{"n": 1_000}]


def test_without_landlock_queries_run_and_it_is_said(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cage, "is_possible", lambda: False)
    lake._internals.warm()
    assert lake.query(QUERIES[0]).rows.to_pylist() == lake.sql(QUERIES[0]).to_pylist()
    assert [record.message for record in caplog.records].count(cage.NONE) == 1


# -- which process


def seen_by(lake: Lake, query: str, **rights: Any) -> tuple[int, set[str]]:
    """The process that answered a query, and the tables that it can see."""
    run_query(internals(lake), query, **rights)
    process = lake._serving.processes._waiting[-1]
    return process.pid, set(process.view)


def only(*tables: str) -> dict[str, Any]:
    return {"may_read": lambda name: name in tables}


@caged
def test_a_process_sees_no_table_that_its_caller_may_not_read(lake: Lake) -> None:
    count = "select count(*) + {} from a.{} where v <> 'none'"
    everything, view = seen_by(lake, "select 1 from a.t, a.secret limit 1")
    assert view == {"a.t", "a.secret"}

    narrow, view = seen_by(lake, count.format(1, "t"), **only("a.t"))
    assert (narrow != everything, view) == (True, {"a.t"})

    # Of the same rights, each goes on with its own.
    assert seen_by(lake, count.format(2, "t"), **only("a.t")) == (narrow, {"a.t"})
    assert seen_by(lake, count.format(2, "secret")) == (everything, {"a.t", "a.secret"})
    assert seen_by(lake, "select 2", **only()) not in [(everything, view), (narrow, view)]


@caged
def test_a_table_that_the_text_did_not_show_means_another_process(lake: Lake) -> None:
    first, view = seen_by(lake, "select 1")
    assert view == set()
    second, view = seen_by(lake, "select count(*) from (values (1)) n, a.t where v <> 'none'")
    assert (first != second, view) == (True, {"a.t"})
    with pytest.raises(Forbidden):
        run_query(internals(lake), "select count(*) from (values (1)) n, a.secret where v <> 'none'", **only("a.t"))


@caged
def test_a_table_that_was_dropped_and_created_anew(lake: Lake) -> None:
    query = "select count(v) as n from a.t where v <> 'none'"
    assert lake.query(query).rows.to_pylist() == [{"n": 1_000}]
    lake.drop_table("a.t")
    table = lake.create_table("a.t", COLUMNS, key="id")
    table.upsert(rows(20))
    table.fold()
    assert lake.query(query).rows.to_pylist() == [{"n": 20}]


@caged
def test_a_folder_that_was_put_back_from_a_copy(lake: Lake, folder: Path) -> None:
    query = "select count(v) + {} as n from a.t where v <> 'none'"
    assert lake.query(query.format(0)).rows.to_pylist() == [{"n": 1_000}]
    base, copy = folder / "lake" / "a" / "t" / "base", folder / "copy"
    subprocess.run(["cp", "-a", base, copy], check=True)
    base.rename(folder / "old")
    copy.rename(base)
    assert lake.query(query.format(1)).rows.to_pylist() == [{"n": 1_001}]


@caged
def test_processes_that_are_ready_see_the_tables_of_the_lake(lake: Lake) -> None:
    lake._internals.warm()
    lake._serving.processes._later.wait()
    waiting = lake._serving.processes.pids()
    assert waiting
    assert seen_by(lake, "select max(v) from a.t where id > 1")[0] in waiting


def folders(*inodes: int) -> frozenset[Folder]:
    return frozenset(Folder(f"/x/{inode}", 1, inode) for inode in inodes)


def test_which_views_fit() -> None:
    view = {"a.t": folders(1, 2), "a.u": folders(3)}
    assert fits(view, {}, None)
    assert fits(view, {"a.t": folders(1)}, lambda name: name in ("a.t", "a.u"))
    assert not fits(view, {"a.t": folders(1)}, lambda name: name == "a.t")
    assert not fits(view, {"a.t": folders(4)}, None)
    assert not fits(view, {"a.w": folders(3)}, None)


def test_a_new_view_has_what_was_asked_for_lately() -> None:
    views = Views()
    for number in range(TABLES_KNOWN_MAX + 1):
        views.note({f"a.t{number}": folders(number)})
    assert set(views.of_new({"b.t": folders(7)}, lambda name: name in ("a.t0", "a.t9"))) == {"a.t9", "b.t"}
    assert views.of_new({"a.t9": folders(10)}, None)["a.t9"] == folders(10)
    assert len(views.of_new({}, None)) == TABLES_KNOWN_MAX
