"""A broker of Kafka and Spark's connector for it, from Maven's registry: fetched once into the user's cache by the Ivy
that comes with Spark, each jar as kafka_jars.lock has it. What the broker needs besides lies among Spark's own jars.
Run as a program, it does that beforehand, so that no test waits for it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

from support.fetched import NotHere, once

FETCH_S_MAX = 300
# The connector goes with the Spark of its own version, and works on the next one: that of 4.3 is not in the registry
# that these tests can reach. Of the part that fetches tokens, which nothing asks here, only an older one is there.
_LOCK = Path(__file__).with_suffix(".lock")
# By the beginnings of their names.
_OF_SPARK = (
    *("jackson-annotations-2", "jackson-core-2", "jackson-databind-2", "log4j-api-2", "log4j-core-2"),
    *("log4j-slf4j2-impl-2", "lz4-java-", "scala-library-2.13", "slf4j-api-2", "snappy-java-", "zstd-jni-"),
)


@dataclass(frozen=True)
class KafkaJars:
    """What a broker and its clients need on their class path, and what Spark needs besides its own."""

    broker: list[str]
    spark: list[str]


@dataclass(frozen=True)
class _Jar:
    whose: str
    package: str
    digest: str

    def file(self, folder: Path) -> Path:
        _, name, version = self.package.split(":")
        return folder / f"{name}-{version}.jar"


def jars(again: bool = False) -> KafkaJars:
    """`again`: also where it has just failed."""
    wanted = _wanted()
    folder = once("kafka", _LOCK.read_text(), _fetch, again)
    found = {whose: [str(jar.file(folder)) for jar in wanted if jar.whose == whose] for whose in ("broker", "spark")}
    own = [str(path) for start in _OF_SPARK for path in _spark_jars().glob(f"{start}*.jar")]
    return KafkaJars([*found["broker"], *own], found["spark"])


def _wanted() -> list[_Jar]:
    lines = _LOCK.read_text().splitlines()
    return [_Jar(*line.split()) for line in lines if not line.startswith("#")]


def _spark_jars() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home()) / "jars"


def _fetch(folder: Path) -> None:
    wanted = _wanted()
    with tempfile.TemporaryDirectory() as scratch:
        # One at a time: of two versions of a package Ivy would take the newer one alone.
        for whose in ("broker", "spark"):
            _retrieve([jar for jar in wanted if jar.whose == whose], folder, Path(scratch))
    for jar in wanted:
        file = jar.file(folder)
        found = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "none"
        if found != jar.digest:
            file.unlink(missing_ok=True)
            raise NotHere(f"{jar.package} is not what it was: the registry has {found}, {_LOCK.name} {jar.digest}")


def _retrieve(wanted: list[_Jar], folder: Path, scratch: Path) -> None:
    from lithify.spark.java import find_java

    (scratch / "ivy.xml").write_text(_ivy_file(wanted))
    (ivy,) = _spark_jars().glob("ivy-2*.jar")
    command = [str(find_java().executable), "-jar", str(ivy), "-cache", f"{scratch}/cache", "-warn"]
    command += ["-ivy", f"{scratch}/ivy.xml", "-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S_MAX)
    except subprocess.TimeoutExpired:
        raise NotHere(f"a broker of Kafka could not be fetched within {FETCH_S_MAX} seconds") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-1500:]
        raise NotHere(f"a broker of Kafka could not be fetched: {said}")


def _ivy_file(wanted: list[_Jar]) -> str:
    module = Element("ivy-module", version="2.0")
    SubElement(module, "info", organisation="tests", module="jars")
    listed = SubElement(module, "dependencies")
    for jar in wanted:
        group, name, version = jar.package.split(":")
        SubElement(listed, "dependency", org=group, name=name, rev=version, transitive="false", conf="default->master")
    return tostring(module, encoding="unicode")


if __name__ == "__main__":
    try:
        found = jars(again=True)
        print(f"For the tests: {len(found.broker) + len(found.spark)} jars of Kafka")
    except NotHere as error:
        # Users have it where they use it; nothing else of the project needs it.
        print(f"Left out of the tests: {error}", file=sys.stderr)
