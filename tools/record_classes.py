"""Record an archive of Spark's classes for this machine's Java, in about 30 s, and say where it is.

What it is for: `lithify.spark.class_archive`. With --once only if there is none yet, and without a complaint where this
Java cannot record one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lithify.errors import Unavailable
from lithify.files.scratch import Scratch
from lithify.spark.class_archive import RECORD_FLAG, find, fingerprint
from lithify.spark.java import JavaHome, cache_folder, find_java

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


def record(java: JavaHome, cache: Path) -> Path:
    """Start a session in a child process, let it work and exit, and keep the classes it used (about 30 s)."""
    folder = cache / "classes"
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
        archive = folder / f"{fingerprint(java)}-{recorded.stat().st_size}.jsa"
        for old in folder.glob(f"{fingerprint(java)}-*.jsa"):
            old.unlink()
        os.replace(recorded, archive)
    return archive


def main() -> None:
    once = "--once" in sys.argv[1:]
    try:
        java, cache = find_java(), cache_folder()
        print((find(java, cache) if once else None) or record(java, cache))
    except Unavailable as error:
        if not once:
            sys.exit(error.message)


if __name__ == "__main__":
    main()
