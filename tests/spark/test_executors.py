"""What executors are given and asked before they work on a lake, and where Spark is looked for. Without a JVM."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Settings, Unavailable
from lithify.core.schema import define
from lithify.files.parquet import Layout, PartWriter, part_path
from lithify.spark.executors import _Look, _look, source_archive
from lithify.spark.session import SparkOptions, _cluster_conf, _sql_conf
from lithify.spark.target import check_answers, check_remote, endpoints, is_local
from lithify.tools.doctor import Status, check_spark, examine

# What runs on executors, or is unpickled there.
ON_EXECUTORS = [
    "lithify.spark.zorder",
    "lithify.spark.datasource.source",
    "lithify.spark.event_write",
    "lithify.spark.executors",
    "lithify.spark.datasource.read",
    "lithify.spark.datasource.write",
    "lithify.spark.tasks",
    "lithify.spark.write",
    "lithify.files.zorder",
    "lithify.files.merge_sorted",
    "lithify.files.rewrite",
    "lithify.index.footer_reader",
]
ALLOWED = ["lithify", "pyspark", "py4j", "pyarrow", "numpy", "pandas", "dateutil", "pytz", "tzdata", "six"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class TestCode:
    def test_it_imports_only_what_executors_have(self) -> None:
        script = (
            "import sys, importlib, importlib.abc\n"
            "here = sys.argv.index('--')\n"
            "allowed = {*sys.stdlib_module_names, *sys.argv[1:here]}\n"
            "class Refuse(importlib.abc.MetaPathFinder):\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name.partition('.')[0] not in allowed and not name.startswith('_'):\n"
            "            raise ModuleNotFoundError(f'executors have no {name}', name=name)\n"
            "sys.meta_path.insert(0, Refuse())\n"
            "for module in sys.argv[here + 1:]: importlib.import_module(module)\n"
        )

        done = subprocess.run(
            [sys.executable, "-c", script, *ALLOWED, "--", *ON_EXECUTORS],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

        assert done.returncode == 0, done.stderr

    def test_the_archive_is_the_source_of_this_package(self) -> None:
        archive = source_archive()

        with zipfile.ZipFile(archive) as files:
            names = files.namelist()
            found = files.read("lithify/spark/executors.py")
        assert "lithify/__init__.py" in names
        assert all(name.startswith("lithify/") and name.endswith(".py") for name in names)
        assert found == Path(sys.modules["lithify.spark.executors"].__file__ or "").read_bytes()

    def test_the_archive_can_be_imported_from(self, tmp_path: Path) -> None:
        script = "import lithify.files.rewrite as found; print(found.__file__)"

        done = subprocess.run(
            [sys.executable, "-P", "-c", script],
            env={**os.environ, "PYTHONPATH": str(source_archive())},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

        assert str(source_archive()) in done.stdout, done.stderr


class TestFolder:
    def test_a_machine_that_sees_it_leaves_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "driver").write_text("token")

        seen = _look(_Look(str(tmp_path), "token"))

        assert seen.problem is None
        assert (tmp_path / seen.wrote).is_file()

    def test_a_machine_without_it(self, tmp_path: Path) -> None:
        assert _look(_Look(str(tmp_path / "lake" / "probe"), "token")).problem == "it is not there"

    def test_a_machine_with_another_folder_of_that_name(self, tmp_path: Path) -> None:
        (tmp_path / "driver").write_text("another token")

        assert _look(_Look(str(tmp_path), "token")).problem == "another folder has this name"

    def test_a_machine_that_has_the_folder_but_not_what_is_in_it(self, tmp_path: Path) -> None:
        problem = _look(_Look(str(tmp_path / "probe"), "token")).problem

        assert problem is not None
        assert problem.endswith("probe does not exist")

    def test_what_a_task_answers_can_be_sent(self, tmp_path: Path) -> None:
        seen = _look(_Look(str(tmp_path), "token"))

        assert pickle.loads(pickle.dumps(seen)) == seen


class TestTasks:
    SCHEMA = define(pa.schema([("id", pa.int64())]), "id", None, None, ())

    def test_they_write_below_the_folder_of_their_job(self, tmp_path: Path) -> None:
        (tmp_path / "fold-1").mkdir()

        assert part_path(str(tmp_path), "fold-1/_day=2026-11-15", "part.parquet").parent.is_dir()

    def test_they_create_no_folder_where_the_lake_is_not(self, tmp_path: Path) -> None:
        with pytest.raises(Unavailable, match=r"fold-1 is not there on \S+:.*mount the lake's folder"):
            part_path(str(tmp_path), "fold-1", "part.parquet")

        assert list(tmp_path.iterdir()) == []

    def test_a_second_attempt_leaves_the_file_of_the_first_alone(self, tmp_path: Path) -> None:
        columns, layout = self.SCHEMA.columns, Layout.of(self.SCHEMA)
        first = PartWriter(tmp_path / "part.parquet", columns, layout)
        second = PartWriter(tmp_path / "part.parquet", columns, layout)
        second.write(pa.table({"id": [1, 2]}, schema=columns))
        first.write(pa.table({"id": [1, 2, 3]}, schema=columns))

        written = [second.close(tmp_path), first.close(tmp_path)]

        assert written[1].path == "part.parquet"
        assert written[0].path != "part.parquet"
        assert [file.rows for file in written] == [2, 3]
        assert {path.name for path in tmp_path.iterdir()} == {file.path for file in written}


class TestAddresses:
    @pytest.mark.parametrize(
        ("address", "expected"),
        [
            ("spark://a:7077,b:7078", [("a", 7077), ("b", 7078)]),
            ("sc://host", [("host", 15002)]),
            ("sc://host:443/;use_ssl=true;token=secret", [("host", 443)]),
            ("sc://[::1]:15002", [("::1", 15002)]),
            ("local[*]", []),
            ("yarn", []),
            ("k8s://https://host:6443", []),
        ],
    )
    def test_who_should_answer(self, address: str, expected: list[tuple[str, int]]) -> None:
        assert endpoints(address) == expected

    @pytest.mark.parametrize("address", ["spark://", "spark://a:port", "sc://:15002"])
    def test_what_is_no_address(self, address: str) -> None:
        with pytest.raises(InvalidRequest, match="is no address of Spark"):
            endpoints(address)

    @pytest.mark.parametrize(
        ("master", "local"),
        [("local", True), ("local[4,2]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
    )
    def test_which_masters_are_this_process(self, master: str, local: bool) -> None:
        assert is_local(master) is local

    def test_a_master_that_nobody_runs(self) -> None:
        port = free_port()

        with pytest.raises(
            Unavailable, match=rf"the Spark master at spark://127.0.0.1:{port} does not answer .*refused"
        ):
            check_answers(f"spark://127.0.0.1:{port}", "the Spark master")

    def test_one_master_of_several_is_enough(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as master:
            check_answers(f"spark://127.0.0.1:{free_port()},127.0.0.1:{master.getsockname()[1]}", "the Spark master")

    def test_a_connect_server_that_nobody_runs_and_no_word_of_the_token(self) -> None:
        port = free_port()

        with pytest.raises(Unavailable, match=rf"Spark Connect at sc://127.0.0.1:{port} does not answer") as caught:
            check_remote(f"sc://127.0.0.1:{port}/;token=secret")

        assert "secret" not in f"{caught.value} {caught.value.details}"

    @pytest.mark.parametrize(
        "remote",
        [
            "sc://127.0.0.1:1;token=secret",
            "sc://127.0.0.1:1/?token=secret",
            "sc://127.0.0.1:1/path;token=secret",
            "sc://user:secret@127.0.0.1:1",
            "127.0.0.1:1;token=secret",
        ],
    )
    def test_no_word_of_a_token_that_was_put_in_the_wrong_place(self, remote: str) -> None:
        with pytest.raises((InvalidRequest, Unavailable)) as caught:
            check_remote(remote)

        assert "secret" not in f"{caught.value} {caught.value.details}"
        assert "127.0.0.1:1" in str(caught.value)

    @pytest.mark.parametrize("remote", ["http://127.0.0.1:15002", "127.0.0.1:15002", "sc://:15002"])
    def test_what_is_no_address_of_spark_connect(self, remote: str) -> None:
        with pytest.raises(InvalidRequest, match="sc://host:15002"):
            check_remote(remote)

    def test_packages_of_spark_connect_that_are_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "grpc", None)

        with pytest.raises(Unavailable, match=r"\(grpcio\).*pip install 'lithify\[connect\]'"):
            check_remote("sc://127.0.0.1:15002")


class TestDoctor:
    def test_this_machine(self) -> None:
        check = check_spark(Settings(spark_master="local[3]", spark_driver_memory="2g"))

        assert (check.status, check.found) == (Status.ok, "on this machine (local[3]: 3 cores, 2g heap)")

    def test_a_cluster_that_answers(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as master:
            url = f"spark://127.0.0.1:{master.getsockname()[1]}"
            check = check_spark(Settings(spark_master=url))

        assert (check.status, check.found) == (Status.ok, f"the cluster at {url} answers")

    def test_a_server_that_does_not(self) -> None:
        settings = Settings(spark_remote=f"sc://127.0.0.1:{free_port()}/;token=secret")

        (check,) = [check for check in examine(settings, None) if check.name == "spark"]

        assert check.status is Status.fail
        assert "does not answer" in check.found
        assert "secret" not in str(check)


class TestDefaults:
    def test_executors_of_a_cluster_come_and_go_with_the_work(self) -> None:
        conf = _cluster_conf(SparkOptions(master="spark://host:7077", executor_memory="4g", executor_cores=4))

        assert conf["spark.dynamicAllocation.enabled"] == "true"
        assert (conf["spark.executor.memory"], conf["spark.executor.cores"]) == ("4g", "4")

    @pytest.mark.parametrize("setting", ["spark.executor.instances", "spark.cores.max"])
    def test_unless_their_number_is_given(self, setting: str) -> None:
        assert _cluster_conf(SparkOptions(master="spark://host:7077", extra_conf={setting: "8"})) == {}

    @pytest.mark.parametrize(("master", "partitions"), [("local[2]", "4"), ("local[200]", "400"), ("yarn", None)])
    def test_shuffle_partitions_follow_the_cores(self, master: str, partitions: str | None) -> None:
        assert _sql_conf(SparkOptions(master=master)).get("spark.sql.shuffle.partitions") == partitions
