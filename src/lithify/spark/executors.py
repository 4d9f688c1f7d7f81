"""What executors need before they work on a lake: Lithify's code, and the lake's folder.

Executors of a cluster, or of a Spark Connect server, have a Python of their own, with pyspark, pyarrow and numpy but
without Lithify. `prepare` ships the source of this very package to them, once per session, so that no other version
can be there. What runs on executors imports nothing beyond those three.

Then it asks every core that Spark has at the moment to read a file that this process has just put into the lake, and to
write another beside it, which this process must find. So a machine that lacks the mount, has another folder under the
same name, or may not write to it is named before any work is done. A machine that joins later is found out by its first
task: tasks write only below a folder that the driver has made (`store.parquet.part_path`).

In local mode executors are part of this process's own JVM and interpreter, and nothing of this is done.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import platform
import socket
import sys
import threading
import uuid
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from lithify.errors import ComputeFailed, LithifyError, Unavailable
from lithify.files.local import LocalStorage
from lithify.files.paths import discard_tree
from lithify.files.staging import sweep
from lithify.spark.java import cache_folder
from lithify.spark.target import is_local
from lithify.spark.tasks import SPARK_ERRORS, compute_failed, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT_S_MAX = 120.0
PROBES_MAX = 1_000
# Set on sessions that Lithify started without being told how many shuffle partitions to use.
PARTITIONS_BY_CORES = "spark.lithify.partitions.by.cores"
_PARTITIONS_MIN = 200
_SESSIONS_REMEMBERED_MAX = 64
_INTERRUPT_EVERY_S = 1.0
_PROBE_S_MAX = 3600
_ROUNDS_MAX = 3
_ROWS_COUNTED = 10_000
_EPOCH = (1980, 1, 1, 0, 0, 0)

_lock = threading.Lock()
_reached: OrderedDict[tuple[str, str], set[PurePath]] = OrderedDict()


def prepare(spark: SparkSession, root: PurePath, wait_s_max: float = WAIT_S_MAX) -> None:
    """Make a session fit for work on the lake at `root`, or say which machine cannot take part and why.

    Done once for each session and lake. `wait_s_max`: how long executors may take to come.
    """
    if runs_here(spark):
        return
    with _lock:
        roots = _reached.setdefault(_identity(spark), set())
        if root in roots:
            return
        while len(_reached) > _SESSIONS_REMEMBERED_MAX:
            _reached.popitem(last=False)
        if not roots:
            ship(spark)
        with _bounded(spark, wait_s_max) as session:
            slots = cores(session)
            _probe(session, root, min(slots, PROBES_MAX))
        if not roots and spark.conf.get(PARTITIONS_BY_CORES, "false") == "true":
            spark.conf.set("spark.sql.shuffle.partitions", str(max(_PARTITIONS_MIN, 2 * slots)))
        roots.add(root)


def runs_here(spark: SparkSession) -> bool:
    """Whether tasks run on this process's own JVM and interpreter."""
    return not is_connect(spark) and is_local(spark.conf.get("spark.master", "") or "")


def _identity(spark: SparkSession) -> tuple[str, str]:
    """What its executors belong to: an application, and on Spark Connect one client's session of it. Spark hands out
    further session objects of the same application, one for each micro-batch among them.
    """
    return spark.conf.get("spark.app.id", "") or "", str(getattr(spark, "session_id", ""))


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


# -- the code


def ship(spark: SparkSession) -> None:
    archive = source_archive()
    try:
        spark.addArtifacts(str(archive), pyfile=True)
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    # PySpark also puts it, or a copy that goes with the JVM, on this process's own path.
    if not archive.samefile(Path(__file__).parents[2]):
        sys.path[:] = [entry for entry in sys.path if not entry.endswith(archive.name)]
    importlib.invalidate_caches()


@functools.cache
def source_archive() -> Path:
    """This package's source as a zip file, named after its content."""
    package = Path(__file__).parents[1]
    if package.parent.is_file():
        return package.parent  # this process was itself given the archive
    files = sorted(package.rglob("*.py"))
    content = {file.relative_to(package.parent).as_posix(): file.read_bytes() for file in files}
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    target = cache_folder() / "source" / f"lithify-{digest}.zip"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{uuid.uuid4().hex}")
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in content.items():
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
        os.replace(draft, target)
    return target


# -- the folder


@dataclass(frozen=True)
class _Look:
    """What a task is to look at: the driver's file in `folder`, and what stands in it."""

    folder: str
    token: str


@dataclass(frozen=True)
class _Seen:
    host: str
    problem: str | None = None
    wrote: str = ""


def cores(spark: SparkSession) -> int:
    """How many tasks run at once at the moment. Spark's public interface does not say, but it cuts a range into so many
    parts. Asked again while it grows: executors come one after the other.
    """
    from pyspark.sql import functions as F

    found = 0
    for _ in range(_ROUNDS_MAX):
        (row,) = spark.range(_ROWS_COUNTED).select(F.spark_partition_id().alias("part")).agg(F.max("part")).collect()
        if row[0] + 1 <= found:
            break
        found = row[0] + 1
    return found


def _probe(spark: SparkSession, root: PurePath, tasks: int) -> None:
    token = uuid.uuid4().hex
    folder = root / "_lithify" / f"probe-{token}"
    sweep(folder.parent, ("probe-",), _PROBE_S_MAX)  # of processes that were killed meanwhile
    store = LocalStorage()
    store.make_folder(folder)
    try:
        store.create(folder / "driver", token.encode())
        seen = run_tasks(spark, _look, [_Look(str(folder), token)] * tasks)
        unseen = [found for found in seen if found.problem is None and not store.exists(folder / found.wrote)]
    except ComputeFailed as error:
        raise Unavailable(
            f"the executors of Spark could not run a first task: {error.message}. They need Python "
            f"{platform.python_version_tuple()[0]}.{platform.python_version_tuple()[1]} with pyspark, pyarrow, numpy "
            "and pandas (set spark.pyspark.python in spark_conf to choose it)"
        ) from error
    finally:
        discard_tree(folder)
    blind = {found.host: found.problem for found in seen if found.problem is not None}
    blind |= {found.host: "what it writes does not arrive here" for found in unseen}
    if blind:
        hosts = "; ".join(f"{host}: {problem}" for host, problem in sorted(blind.items()))
        raise Unavailable(
            f"not every machine of the cluster reaches the lake at {root} ({hosts}). Nothing was done: mount the same "
            "folder at this path on every machine, writable for the user that Spark runs as",
            path=str(root),
            hosts=sorted(blind),
        )


def _look(task: _Look) -> _Seen:
    """On an executor. Problems are answers: all hosts that have one are to be named."""
    host = socket.gethostname()
    folder, store = PurePath(task.folder), LocalStorage()
    try:
        if store.read(folder / "driver") != task.token.encode():
            return _Seen(host, "another folder has this name")
        mine = folder / f"executor-{uuid.uuid4().hex}"
        store.create(mine, host.encode())
    except LithifyError as error:
        return _Seen(host, error.message if store.is_folder(folder.parent) else "it is not there")
    return _Seen(host, wrote=mine.name)


@contextlib.contextmanager
def _bounded(spark: SparkSession, wait_s_max: float) -> Iterator[SparkSession]:
    """A session for the probe, whose work is interrupted when it takes too long: a cluster without free cores waits for
    ever. Nothing else that runs on `spark` is touched.
    """
    tag, late, done = f"lithify-probe-{uuid.uuid4().hex}", threading.Event(), threading.Event()
    # Elsewhere than on Spark Connect, tags are known only to the thread that set them.
    session = spark if is_connect(spark) else spark.newSession()

    def interrupt() -> None:
        if not done.wait(wait_s_max):
            late.set()
        # More than once: a job may be about to begin.
        while not done.wait(_INTERRUPT_EVERY_S):
            with contextlib.suppress(Exception):
                if is_connect(session):
                    session.interruptTag(tag)
                else:
                    session.interruptAll()

    threading.Thread(target=interrupt, name="probe-watch", daemon=True).start()
    session.addTag(tag)
    try:
        yield session
    except (*SPARK_ERRORS, LithifyError) as error:
        if late.is_set():
            raise Unavailable(
                f"no executor of Spark took up work within {wait_s_max:.0f} s: does the cluster have workers, with "
                "free cores and as much memory as spark_executor_memory asks for?"
            ) from error
        if isinstance(error, LithifyError):
            raise
        raise compute_failed(error) from error
    finally:
        done.set()
        with contextlib.suppress(Exception):
            session.removeTag(tag)
