"""The connector that Spark reads buckets with, from Maven's registry: fetched once into the user's cache, by Spark as
`s3a = packages` has it do. Run as a program, it does that beforehand, so that no test waits for it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

FETCH_S_MAX, AGAIN_S = 300, 3600
# Tests may have another cache while they run.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lithify-tests"


class NoJars(Exception):
    """They are not to be had here, for the reason given."""


def jars(again: bool = False) -> list[str]:
    """`again`: also where it has just failed."""
    from lithify.spark.s3a import EXCLUDED, hadoop_version, packages

    folder = _CACHE / f"s3a-{hadoop_version()}"
    folder.mkdir(parents=True, exist_ok=True)
    done, failed = folder / "done", folder / "failed"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = " ".join((*packages(), *EXCLUDED))
        if not done.exists() or done.read_text() != wanted:
            if not again and failed.exists() and time.time() - failed.stat().st_mtime < AGAIN_S:
                raise NoJars(failed.read_text())
            _fetch(folder, failed)
            done.write_text(wanted)
    return sorted(map(str, (folder / "jars").glob("*.jar")))


def _fetch(folder: Path, failed: Path) -> None:
    command = [sys.executable, __file__, "--fetch", str(folder)]
    try:
        fetched = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S_MAX)
    except subprocess.TimeoutExpired:
        failed.write_text(f"Spark could not fetch the connector s3a within {FETCH_S_MAX} seconds")
        raise NoJars(failed.read_text()) from None
    if fetched.returncode:
        failed.write_text(f"Spark could not fetch the connector s3a: {fetched.stderr.strip()[-1500:]}")
        raise NoJars(failed.read_text())


def _start_spark(folder: str) -> None:
    from lithify.spark.s3a import launch_conf
    from lithify.spark.session import SparkOptions, local_session, release

    conf = launch_conf("packages", {"spark.jars.ivy": folder})
    release(local_session(SparkOptions(master="local[1]", driver_memory="1g", extra_conf=conf)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fetch"]:
        _start_spark(sys.argv[2])
        sys.exit()
    try:
        print(f"For the tests: {len(jars(again=True))} jars of s3a")
    except NoJars as error:
        # Users have it where they use it; nothing else of the project needs it.
        print(f"Left out of the tests: {error}", file=sys.stderr)
