"""doctor, demo, and ingest, which needs Spark too."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lithify import Lake, Unavailable
from lithify.cli import doctor as machine
from lithify.cli.command import Session
from lithify.cli.output import TextOutput
from lithify.errors import InvalidRequest
from lithify.tools import demo_data, doctor
from lithify.tools.demo import Answer, DemoReport, prepare_folder

Run = Callable[..., Any]


class TestDoctor:
    def test_a_healthy_lake(self, orders: Run) -> None:
        answer = orders("doctor", "--json")
        checks = {check["check"]: check for check in answer.json["checks"]}
        assert {"python", "pyspark", "deltalake", "java", "cores", "memory", "cage", "disk", "fsync", "lake"} <= set(
            checks
        )
        assert checks["table shop.orders"]["status"] == "ok"
        assert checks["table shop.orders"]["values"]["pending_rows"] == 3
        assert checks["fsync"]["values"]["p50_ms"] > 0
        assert answer.code == (0 if answer.json["healthy"] else 1)

    def test_without_a_lake(self, run: Run, tmp_path: Path) -> None:
        answer = run("doctor", "--json")
        assert "lake" not in [check["check"] for check in answer.json["checks"]]
        assert list(tmp_path.iterdir()) == []

    def test_text(self, orders: Run) -> None:
        assert "table shop.orders" in orders("doctor").out

    def test_a_missing_data_file_fails_and_is_named(self, orders: Run, tmp_path: Path) -> None:
        with Lake(tmp_path / "lake") as lake:
            file = lake.table("shop.orders").snapshot().changes[0].path
        (tmp_path / "lake" / "shop" / "orders" / "changes" / file).unlink()
        answer = orders("doctor")
        assert answer.code == 1
        assert f"{file} is missing" in answer.out

    def test_a_torn_log_fails(self, orders: Run, tmp_path: Path) -> None:
        log = tmp_path / "lake" / "shop" / "orders" / "changes" / "_delta_log" / "00000000000000000000.json"
        log.write_text("{torn")
        answer = orders("doctor", "--json")
        assert answer.code == 1
        assert [c["status"] for c in answer.json["checks"] if c["check"] == "table shop.orders"] == ["fail"]

    def test_a_folder_that_is_no_lake_fails(self, run: Run, tmp_path: Path) -> None:
        answer = run("doctor", "--lake", str(tmp_path / "none"))
        assert answer.code == 1
        assert "is no lake" in answer.out

    def test_no_java_says_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def none() -> None:
            raise Unavailable("install a JDK")

        monkeypatch.setattr("lithify.spark.java.find_java", none)
        check = doctor.check_java()
        assert (check.status, check.advice) == (doctor.Status.fail, "install a JDK")

    def test_library_versions(self) -> None:
        wanted = {"pyarrow": doctor.TESTED["pyarrow"], "rich": "1", "no-such-library": "1"}
        assert [check.status.value for check in doctor.check_libraries(wanted)] == ["ok", "warn", "fail"]

    def test_a_folder_without_permission(self) -> None:
        checks = doctor._safely("fsync", lambda: [doctor.check_fsync(Path("/proc"))])
        assert checks[0].status is doctor.Status.fail


class TestDemoFolder:
    def test_a_new_or_empty_folder_is_fine(self, tmp_path: Path) -> None:
        prepare_folder(tmp_path / "new")
        prepare_folder(tmp_path)

    def test_refuses_what_is_no_demo_lake(self, cli: Run, tmp_path: Path) -> None:
        answer = cli("demo", "--json")
        assert answer.code == 1
        assert "was not made by a demo" in answer.json["error"]["message"]
        assert (tmp_path / "lake" / "_lithify" / "lake.json").exists()

    def test_refuses_a_demo_lake_with_other_tables(self, orders: Run, tmp_path: Path) -> None:
        (tmp_path / "lake" / "_lithify" / "demo.json").write_text("{}")
        orders("create", "mine.own", "-c", "id:int64", "--key", "id")
        with pytest.raises(InvalidRequest, match="not of the demo"):
            prepare_folder(tmp_path / "lake")
        assert (tmp_path / "lake" / "mine" / "own").is_dir()

    def test_replaces_a_demo_lake(self, orders: Run, tmp_path: Path) -> None:
        (tmp_path / "lake" / "_lithify" / "demo.json").write_text("{}")
        prepare_folder(tmp_path / "lake")
        assert not (tmp_path / "lake").exists()

    def test_too_few_rows(self, run: Run) -> None:
        assert run("demo", "--rows", "10").code == 2


def test_the_stream_is_the_same_in_every_run() -> None:
    first, second = (demo_data.Stream(2_000, 200, 3, 50) for _ in range(2))
    assert [(b.upserts, b.deletes) for b in first] == [(b.upserts, b.deletes) for b in second]
    assert first.expected == second.expected


def test_the_stream_knows_how_many_rows_it_leaves() -> None:
    stream = demo_data.Stream(2_000, 200, 10, 50)
    alive = set(range(1, 2_001))
    for batch in stream:
        alive |= set(batch.upserts.column("id").to_pylist())
        alive -= set(batch.deletes)
    assert len(alive) == stream.expected


def test_the_demo_ends_with_four_equal_answers_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"country": "DE", "orders": 1200, "revenue": Decimal("1234.50")}]
    answers = [Answer(pending, engine, 0.25, rows) for pending in (51_000, 0) for engine in ("SQL", "Spark")]
    report = DemoReport("/lake", 1000, [], answers, 50.0, ["lithify --lake '/a b' tables"])
    machine._show(Session(TextOutput(), False, None), report)
    shown = capsys.readouterr().out
    assert shown.count("1,234.50") == 4
    assert shown.count("250 ms") == 4
    assert "  lithify --lake '/a b' tables\n" in shown


@pytest.mark.spark
class TestOnSpark:
    """In processes of their own: a JVM keeps the current folder that it was started in."""

    def test_demo_and_the_commands_it_ends_with(self, run: Run, process: Run, tmp_path: Path) -> None:
        answer = process("demo", "--rows", "20000", "--json")
        assert answer.code == 0, answer.out + answer.err
        report = answer.json
        assert report["lake"] == str(tmp_path / "lithify-demo")
        chapters = {step["chapter"] for step in report["steps"]}
        told = {"Load", "Change", "Read fresh", "Travel", "Fold", "Read again", "Explain", "Open", "Pipeline"}
        assert chapters == told
        assert len(report["answers"]) == 4
        assert all(answer["rows"] == report["answers"][0]["rows"] for answer in report["answers"])
        for line in report["try_next"]:
            program, *arguments = shlex.split(line)
            assert program == "lithify"
            assert run(*arguments).code == 0, line

    def test_ingest_creates_loads_and_sets_bad_records_aside(self, cli: Run, process: Run, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("id,name\n1,x\n2,y\n")
        (tmp_path / "b.csv").write_text("id,name\nthree,z\n4,z\n")
        new = ("--create", "--key", "id", "-c", "id:int64", "-c", "name:string", "--on-bad-record", "quarantine")
        answer = process("ingest", "shop.people", "*.csv", *new, "--lake", "lake", "--json")
        assert answer.code == 0, answer.out + answer.err
        assert (answer.json["rows"], answer.json["files"], answer.json["bad_records"]) == (3, 2, 1)
        assert Path(answer.json["quarantine"]).is_dir()
        assert cli("get", "shop.people", "4", "--json").json["row"] == {"id": 4, "name": "z"}

    def test_ingest_fails_with_the_place_of_a_bad_record(self, orders: Run, process: Run, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("id,amount,status\n4,1.50,ok\n5,abc,bad\n")
        answer = process("ingest", "shop.orders", "a.csv", "--lake", "lake")
        assert answer.code == 1, answer.err
        assert "a.csv" in answer.err
        assert "abc" in answer.err
        assert orders("stats", "shop.orders", "--json").json["seq"] == 1


def test_ingest_of_nothing(orders: Run) -> None:
    answer = orders("ingest", "shop.orders", "nothing-*.csv", "--json")
    assert answer.code == 3
    assert json.loads(answer.out)["error"]["code"] == "not_found"
