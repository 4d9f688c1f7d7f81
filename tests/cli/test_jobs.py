"""`lithify jobs`: how far jobs of other processes are, and ending one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lithify import Cancelled, Lake
from lithify.cli.main import app
from lithify.jobs.watch import Watch
from lithify.lake.internals import internals
from support.faults import FaultyStore, Gate

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
runner = CliRunner()


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


def test_a_job_of_another_process_is_seen_and_ended(tmp_path: Path, gate: Gate) -> None:
    path = tmp_path / "lake"
    with Lake(path, create=True) as lake:
        lake.create_table("a.t", SCHEMA, key="id").upsert([{"id": n} for n in range(10)])
        lake.table("a.t").fold()
        lake.table("a.t").upsert([{"id": 1}])
    with Lake(path, store=FaultyStore("fold.written", gate.hold)) as lake, ThreadPoolExecutor(1) as pool:
        fold = pool.submit(lake.table("a.t").fold)
        gate.wait()
        runtime = internals(lake).runtime
        runtime.shared(Watch).tell(runtime)  # what its thread does every few seconds
        shown = runner.invoke(app, ["jobs", "--lake", str(path)])
        (job,) = json.loads(runner.invoke(app, ["jobs", "--lake", str(path), "--json"]).stdout)["jobs"]
        ended = runner.invoke(app, ["jobs", "--lake", str(path), "--cancel", job["id"]])
        runtime.shared(Watch).tell(runtime)
        gate.open()
        with pytest.raises(Cancelled, match=r"fold of a\.t was cancelled by "):
            fold.result(60)
    assert "100 %" in shown.stdout
    assert (job["rows_done"], job["rows_total"]) == (10, 10)
    assert (ended.exit_code, "ends at its next step" in ended.stdout) == (0, True)


def test_what_is_not_under_way(tmp_path: Path) -> None:
    with Lake(tmp_path / "lake", create=True):
        pass
    answer = runner.invoke(app, ["jobs", "--lake", str(tmp_path / "lake"), "--cancel", "none"])
    assert answer.exit_code == 3
    assert "no job and no cycle none is under way" in answer.stderr
