"""The connector that Spark reads buckets with, from Maven's registry: fetched once into the user's cache, by Spark as
`s3a = packages` has it do. Run as a program, it does that beforehand, so that no test waits for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.fetched import NotHere, once

FETCH_S_MAX = 300


def jars(again: bool = False) -> list[str]:
    """`again`: also where it has just failed."""
    from lithify.spark.s3a import EXCLUDED, hadoop_version, packages

    wanted = " ".join((*packages(), *EXCLUDED))
    folder = once(f"s3a-{hadoop_version()}", wanted, _fetch, again)
    return sorted(map(str, (folder / "jars").glob("*.jar")))


def _fetch(folder: Path) -> None:
    command = [sys.executable, "-m", "support.s3a_jars", "--fetch", str(folder)]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    try:
        fetched = subprocess.run(command, env=here, capture_output=True, text=True, timeout=FETCH_S_MAX)
    except subprocess.TimeoutExpired:
        raise NotHere(f"Spark could not fetch the connector s3a within {FETCH_S_MAX} seconds") from None
    if fetched.returncode:
        raise NotHere(f"Spark could not fetch the connector s3a: {fetched.stderr.strip()[-1500:]}")


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
    except NotHere as error:
        # Users have it where they use it; nothing else of the project needs it.
        print(f"Left out of the tests: {error}", file=sys.stderr)
