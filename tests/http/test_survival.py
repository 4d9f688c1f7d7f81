"""Real faults while the service runs: it says what is wrong, all else goes on, and so does that once it is repaired."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from lithify import Lake, Settings
from support.faults import FaultyStore, disk_full
from support.waiting import session_is_gone

ORDERS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("status", pa.string())])


class Disk:
    """Full from the moment it is said to be until it is not."""

    def __init__(self) -> None:
        self.full = False
        self.store = FaultyStore("store.write", self._write, times=None)

    def _write(self) -> None:
        if self.full:
            disk_full()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def settings() -> Settings:
    # Answers kept in memory would hide a damaged file.
    return Settings(port=0, shutdown_s=5, cache_bytes_max=0)


@pytest.fixture
def lake(tmp_path: Path, settings: Settings, disk: Disk) -> Iterator[Lake]:
    with Lake(tmp_path / "lake", settings=settings, store=disk.store) as lake:
        for name in ("shop.orders", "shop.lines"):
            table = lake.create_table(name, ORDERS, key="id")
            table.upsert([{"id": n, "status": "paid"} for n in (1, 2, 3)])
        yield lake


def write(client: TestClient, table: str, id: int = 9) -> Any:
    return client.post(f"/v1/tables/{table}/rows", json=[{"id": id, "status": "new"}])


def ask(client: TestClient, table: str) -> Any:
    return client.post("/v1/query/sql", json={"sql": f"select count(*) as n from {table}"})


def rows(client: TestClient, table: str) -> int:
    answer = ask(client, table)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["rows"][0][0])


class TestFullDisk:
    @pytest.mark.parametrize(
        "change",
        [
            lambda client: write(client, "shop.orders"),
            lambda client: client.post("/v1/tables/shop.orders/delete", json={"keys": [1]}),
            lambda client: client.post("/v1/tables/shop.orders/fold"),
        ],
        ids=["write", "delete", "fold"],
    )
    def test_changes_are_refused_and_reads_go_on(
        self, client: TestClient, disk: Disk, change: Callable[[TestClient], Any]
    ) -> None:
        disk.full = True

        answer = change(client)

        assert answer.status_code == 507, answer.text
        assert answer.json()["code"] == "unavailable"
        assert "disk space" in answer.json()["what_to_do"]
        assert rows(client, "shop.orders") == 3
        assert client.get("/v1/tables/shop.orders/row?key=1").json()["row"]["status"] == "paid"
        assert client.get("/health/ready").status_code == 200

    def test_once_there_is_room_again_writes_go_on(self, client: TestClient, disk: Disk) -> None:
        disk.full = True
        assert write(client, "shop.orders").status_code == 507

        disk.full = False

        assert write(client, "shop.orders").status_code == 200
        assert rows(client, "shop.orders") == 4


class TestLostFolder:
    def test_the_table_is_gone_and_the_others_go_on(self, client: TestClient, lake: Lake) -> None:
        assert rows(client, "shop.orders") == 3
        shutil.rmtree(lake.path / "shop" / "orders")

        for answer in (ask(client, "shop.orders"), write(client, "shop.orders")):
            assert answer.status_code == 404, answer.text
            assert "shop.orders does not exist" in answer.json()["message"]
        assert rows(client, "shop.lines") == 3
        assert write(client, "shop.lines").status_code == 200
        assert client.get("/health/ready").status_code == 200

    def test_it_may_be_created_again(self, client: TestClient, lake: Lake) -> None:
        assert rows(client, "shop.orders") == 3
        shutil.rmtree(lake.path / "shop" / "orders")

        lake.create_table("shop.orders", ORDERS, key="id")

        assert rows(client, "shop.orders") == 0
        assert write(client, "shop.orders").status_code == 200

    def test_the_whole_lake(self, client: TestClient, lake: Lake) -> None:
        lake.path.rename(lake.path.with_name("unmounted"))
        answer = client.get("/health/ready")
        assert answer.status_code == 503
        assert "gone" in answer.json()["message"]
        assert client.get("/health/live").status_code == 200

        lake.path.with_name("unmounted").rename(lake.path)

        assert client.get("/health/ready").status_code == 200
        assert rows(client, "shop.orders") == 3


def damage(path: Path) -> None:
    """Bytes in the middle, as a bad disk would; the size stays."""
    data = bytearray(path.read_bytes())
    data[len(data) // 4 : 3 * len(data) // 4] = b"\xa5" * (3 * len(data) // 4 - len(data) // 4)
    path.write_bytes(data)


class TestCorruption:
    def test_a_damaged_file_is_that_tables_trouble_alone(self, client: TestClient, lake: Lake) -> None:
        lake.table("shop.orders").fold()
        write(client, "shop.orders")
        (file,) = (lake.path / "shop" / "orders" / "base").rglob("*.parquet")
        damage(file)
        lake._loaded.refresh()

        answer = ask(client, "shop.orders")

        assert answer.status_code == 424, answer.text
        assert answer.json()["code"] == "corruption"
        assert file.name in answer.json()["message"]
        assert str(lake.path) not in answer.text
        assert rows(client, "shop.lines") == 3
        assert client.get("/health/ready").status_code == 200

    def test_a_damaged_log(self, client: TestClient, lake: Lake) -> None:
        for id in (4, 5):
            write(client, "shop.orders", id)
        # As another process would find it: here, the log has been read.
        shutil.copytree(lake.path / "shop" / "orders", lake.path / "shop" / "broken")
        for file in (lake.path / "shop" / "broken" / "changes").rglob("_delta_log/*.json"):
            file.write_bytes(b"\xa5" * 200)

        answer = ask(client, "shop.broken")

        assert answer.status_code == 424, answer.text
        assert rows(client, "shop.orders") == 5
        assert write(client, "shop.lines").status_code == 200


@pytest.mark.spark
class TestDeadWorker:
    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(
            port=0, shutdown_s=5, cache_bytes_max=0, local_job_bytes_max=0, worker_memory="1g", spark_master="local[1]"
        )

    def test_the_service_outlives_its_worker(self, client: TestClient, lake: Lake) -> None:
        for _ in range(2):  # the first one only links files
            assert client.post("/v1/tables/shop.orders/fold").status_code == 200
            write(client, "shop.orders", 1)
        assert client.post("/v1/tables/shop.orders/fold").status_code == 200
        pid = lake._runtime.compute.status().pid  # type: ignore[attr-defined]
        assert pid is not None

        os.kill(pid, signal.SIGKILL)

        assert rows(client, "shop.orders") == 3
        assert write(client, "shop.orders", 4).status_code == 200
        # What needs a worker may meet the dead one; the next finds a new one.
        answers = [client.post("/v1/tables/shop.orders/fold") for _ in range(2)]
        assert {answer.status_code for answer in answers} <= {200, 503}, [answer.text for answer in answers]
        assert answers[-1].status_code == 200
        assert session_is_gone(pid)
        assert rows(client, "shop.orders") == 4
