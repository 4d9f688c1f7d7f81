"""Commands on a lake in a bucket, as a user types them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lithify.files.addresses import path_of
from lithify.files.open_storage import storage_of
from support.careless_server import careless
from support.s3_servers import S3Server, free_port

pytestmark = pytest.mark.bucket

Run = Callable[..., Any]


def _objects(address: str) -> list[str]:
    return list(storage_of(address).below(path_of(address)))


@pytest.fixture
def lake(run: Run, address: str) -> Run:
    """Runs a command on a new lake there."""
    assert run("init", address).code == 0
    return lambda *arguments, **options: run(*arguments, "--lake", address, **options)


class TestItsAddress:
    def test_init_says_where_it_is_and_what_to_export(self, run: Run, address: str) -> None:
        answer = run("init", address)
        assert answer.code == 0
        assert f"lake created in {address}" in answer.out
        assert f"export LITHIFY_LAKE={address}" in answer.out
        assert _objects(address) == ["_lithify/lake.json"]
        assert run("init", f"{address}/", "--json").json == {"lake": address, "created": False}

    def test_it_may_come_from_the_environment_or_from_a_file(
        self, run: Run, lake: Run, address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "lithify.toml").write_text(f'lake = "{address}"\n')
        assert run("tables").code == 0
        (tmp_path / "lithify.toml").unlink()
        assert "which lake?" in run("tables").err
        monkeypatch.setenv("LITHIFY_LAKE", address)
        assert run("tables").code == 0

    def test_a_prefix_that_holds_something_else_is_left_alone(self, run: Run, address: str) -> None:
        storage_of(address).put(path_of(f"{address}/data.csv"), b"a,b\n")
        answer = run("init", address)
        assert answer.code == 1
        assert f"{address} is no lake and not empty: give an empty or a new prefix" in answer.err
        assert _objects(address) == ["data.csv"]

    def test_a_prefix_without_a_lake_is_told_how_to_make_one(self, run: Run, address: str) -> None:
        answer = run("tables", "--lake", address)
        assert (answer.code, f"`lithify init {address}`" in answer.err) == (3, True)
        assert _objects(address) == []


class TestATable:
    @pytest.fixture
    def orders(self, lake: Run) -> Run:
        assert (
            lake("create", "shop.orders", "-c", "id:int64!", "-c", "day:date", "--key", "id", "--time", "day").code == 0
        )
        rows = "".join(f'{{"id": {number}, "day": "2026-11-{number:02d}"}}\n' for number in range(1, 5))
        assert lake("write", "shop.orders", "-", stdin=rows).code == 0
        return lake

    def test_from_its_rows_to_its_end(self, orders: Run, address: str, tmp_path: Path) -> None:
        assert orders("delete", "shop.orders", "4", "--reason", "asked").code == 0
        assert orders("fold", "shop.orders", "--json").json["folds"][0]["final_rows"] == 3
        assert orders("get", "shop.orders", "2", "--json").json["row"] == {"id": 2, "day": "2026-11-02"}
        assert orders("describe", "shop.orders", "--json").json["base"]["path"] == f"{address}/shop/orders/base"
        assert orders("sql", "select count(*) as n from shop.orders", "--as-of", "1", "--json").json["rows"] == [
            {"n": 4}
        ]
        assert orders("detach", "shop.orders", "2026-11-03", "day").code == 0
        assert len(list((tmp_path / "day").glob("*.parquet"))) == 1
        assert orders("attach", "shop.orders", "day").code == 0
        assert orders("index", "check", "shop.orders").code == 0
        assert orders("vacuum", "shop.orders", "--apply").code == 0
        found = orders("sql", "select id from shop.orders order by id", "--json").json["rows"]
        assert [row["id"] for row in found] == [1, 2, 3]
        dropped = orders("drop", "shop.orders", "--yes")
        assert (dropped.code, dropped.err) == (0, "")
        assert orders("tables", "--json").json["tables"] == []

    def test_doctor_finds_an_object_that_somebody_removed(self, orders: Run, address: str) -> None:
        (file,) = (name for name in _objects(address) if name.endswith(".parquet"))
        storage_of(address).delete(path_of(f"{address}/{file}"))
        answer = orders("doctor", "--json")
        assert answer.code == 1
        (table,) = (check for check in answer.json["checks"] if check["check"] == "table shop.orders")
        assert f"{address}/{file} is missing" in table["advice"]

    def test_doctor_finds_an_object_that_somebody_replaced(self, orders: Run, address: str, s3: S3Server) -> None:
        """By one of the same size: what is here of the first tells."""
        (file,) = (name for name in _objects(address) if name.endswith(".parquet"))
        content = storage_of(address).read(path_of(f"{address}/{file}"))
        assert orders("doctor", "--json").code == 0

        s3.put(f"{address}/{file}", content[::-1])
        answer = orders("doctor", "--json")
        assert answer.code == 1
        (table,) = (check for check in answer.json["checks"] if check["check"] == "table shop.orders")
        assert f"{address}/{file} is another object than when it was read here" in table["advice"]

        s3.put(f"{address}/{file}", content)
        assert orders("doctor", "--json").code == 0

    def test_files_of_users_lie_on_this_machine(self, orders: Run, tmp_path: Path) -> None:
        for command in (
            ("write", "shop.orders", "s3://elsewhere/rows.jsonl"),
            ("sql", "select 1", "-o", "s3://elsewhere/rows.csv"),
            ("detach", "shop.orders", "2026-11-01", "s3://elsewhere/day"),
            ("attach", "shop.orders", "s3://elsewhere/day"),
        ):
            answer = orders(*command)
            assert answer.code == 1
            assert "is an address: name a file or folder of this machine" in answer.err
        assert list(tmp_path.iterdir()) == []

    def test_a_stream_needs_a_folder_for_what_it_has_taken(self, orders: Run, address: str, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        answer = orders("stream", "in", "shop.orders", "--once")
        assert answer.code == 1
        assert "name a folder for that (--checkpoint DIR)" in answer.err
        assert not any("streams" in name for name in _objects(address))

    @pytest.mark.slow
    def test_two_processes_at_once(self, orders: Run, process: Run, address: str) -> None:
        def write(first: int) -> int:
            rows = [f'--row={{"id": {first + number}, "day": "2026-11-09"}}' for number in range(10)]
            return int(process("write", "shop.orders", *rows, "--lake", address).code)

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(write, (100, 200))) == [0, 0]
        answer = orders("sql", "select count(*) as n from shop.orders", "--json").json
        assert answer["rows"] == [{"n": 24}]


class TestAServerThatIsNotWhatWasMeant:
    def test_no_such_bucket(self, run: Run, s3: S3Server) -> None:
        answer = run("init", "s3://no-such-bucket/lake")
        assert answer.code == 1
        assert "there is no bucket no-such-bucket: create it, or correct the lake's address" in answer.err

    def test_wrong_keys(self, run: Run, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
        answer = run("init", address)
        assert answer.code == 1
        assert "AWS_SECRET_ACCESS_KEY" in answer.err
        assert "another-secret" not in answer.err

    def test_nobody_there(self, run: Run, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
        answer = run("tables", "--lake", address)
        assert answer.code == 1
        assert "check AWS_ENDPOINT_URL" in answer.err


class TestDoctor:
    def test_it_measures_the_bucket_and_leaves_nothing_there(self, lake: Run, address: str, s3: S3Server) -> None:
        answer = lake("doctor", "--json")
        checks = {check["check"]: check for check in answer.json["checks"]}
        assert checks["bucket"]["values"]["endpoint"] == s3.url
        assert checks["bucket"]["values"]["p50_ms"] > 0
        assert {checks[name]["status"] for name in ("conditions", "clock", "copies", "lake")} == {"ok"}
        assert {"disk", "fsync"} & set(checks) == set()
        assert _objects(address) == ["_lithify/lake.json"]

    def test_a_bucket_that_cannot_be_reached_fails_once(
        self, run: Run, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
        answer = run("doctor", "--lake", address, "--json")
        assert answer.code == 1
        failed = [check for check in answer.json["checks"] if check["status"] == "fail"]
        assert [check["check"] for check in failed] == ["bucket"]
        assert "another-secret" not in answer.out

    def test_a_server_that_overwrites_what_is_there_fails(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        with careless("ignores If-None-Match") as server:
            for name, value in server.environment().items():
                monkeypatch.setenv(name, value)
            answer = run("doctor", "--lake", "s3://bucket/lake", "--json")
        (check,) = [check for check in answer.json["checks"] if check["check"] == "conditions"]
        assert (answer.code, check["status"]) == (1, "fail")
        assert "it ignores If-None-Match" in check["found"]
