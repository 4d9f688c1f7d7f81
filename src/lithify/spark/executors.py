"""What executors need before they work on a lake: Lithify's code, and the lake's folder or bucket.

Executors of a cluster, or of a Spark Connect server, have a Python of their own, with pyspark, pyarrow and numpy but
without Lithify. `prepare` ships the source of this very package to them, once per session, so that no other version
can be there. What runs on executors imports nothing beyond those three.

Then it asks every core that Spark has at the moment to read a file that this process has just put into the lake, and to
write another beside it, which this process must find. So a machine that lacks the mount, has another folder under the
same name, or may not write to it is named before any work is done. A machine that joins later is found out by its first
task: tasks write only below a folder that the driver has made (`store.parquet.part_path`).

In a bucket it is objects instead of files: so a machine without keys, or with other ones, is named too.

In local mode executors are part of this process's own JVM and interpreter, and nothing of this is done. Only a bucket
is asked for there as well: Spark's processes have the environment that the JVM was started with.
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

from lithify.errors import ComputeFailed, LithifyError, NotFound, Unavailable
from lithify.files.addresses import is_remote, path_of
from lithify.files.open_storage import storage_of
from lithify.files.staging import discard, sweep
from lithify.spark.java import cache_folder
from lithify.spark.target import identity, is_connect, runs_here
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
_IN_A_FOLDER = "mount the same folder at this path on every machine, writable for the user that Spark runs as"
_IN_A_BUCKET = (
    "tasks take keys and endpoint (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL, AWS_REGION) from the "
    "environment that Spark was started in, or from the role of their machine; set them before Spark starts, and on a "
    "cluster for each of its workers"
)

_lock = threading.Lock()
_reached: OrderedDict[tuple[str, str], set[PurePath]] = OrderedDict()


def prepare(spark: SparkSession, root: PurePath, wait_s_max: float = WAIT_S_MAX) -> None:
    """Make a session fit for work on the lake at `root`, or say which machine cannot take part and why.

    Done once for each session and lake. `wait_s_max`: how long executors may take to come.
    """
    here = runs_here(spark)
    if here and not is_remote(root):
        return
    with _lock:
        roots = _reached.setdefault(identity(spark), set())
        if root in roots:
            return
        while len(_reached) > _SESSIONS_REMEMBERED_MAX:
            _reached.popitem(last=False)
        if not roots and not here:
            ship(spark)
        with _bounded(spark, wait_s_max) as session:
            slots = 1 if here else cores(session)
            _probe(session, root, min(slots, PROBES_MAX))
        if not roots and not here and spark.conf.get(PARTITIONS_BY_CORES, "false") == "true":
            spark.conf.set("spark.sql.shuffle.partitions", str(max(_PARTITIONS_MIN, 2 * slots)))
        roots.add(root)


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
    store = storage_of(root)
    store.make_folder(folder)
    try:
        store.create(folder / "driver", token.encode())
        seen = run_tasks(spark, _look, [_Look(str(folder), token)] * tasks)
        unseen = [found for found in seen if found.problem is None and not store.exists(folder / found.wrote)]
    except ComputeFailed as error:
        packages = (
            "pyspark, pyarrow, numpy, pandas and obstore" if store.remote else "pyspark, pyarrow, numpy and pandas"
        )
        raise Unavailable(
            f"the executors of Spark could not run a first task: {error.message}. They need Python "
            f"{platform.python_version_tuple()[0]}.{platform.python_version_tuple()[1]} with {packages} "
            "(set spark.pyspark.python in spark_conf to choose it)"
        ) from error
    finally:
        discard(folder)
    blind = {found.host: found.problem for found in seen if found.problem is not None}
    blind |= {found.host: "what it writes does not arrive here" for found in unseen}
    if blind:
        hosts = "; ".join(f"{host}: {problem}" for host, problem in sorted(blind.items()))
        what = _IN_A_BUCKET if store.remote else _IN_A_FOLDER
        raise Unavailable(
            f"not every machine that Spark works on reaches the lake at {root} ({hosts}). Nothing was done: {what}",
            path=str(root),
            hosts=sorted(blind),
        )


def _look(task: _Look) -> _Seen:
    """On an executor. Problems are answers: all hosts that have one are to be named."""
    host, folder = socket.gethostname(), path_of(task.folder)
    try:
        store = storage_of(folder)
        if store.read(folder / "driver") != task.token.encode():
            return _Seen(host, "another folder has this name")
        mine = folder / f"executor-{uuid.uuid4().hex}"
        store.create(mine, host.encode())
    except LithifyError as error:
        return _Seen(host, _why(error, folder))
    return _Seen(host, wrote=mine.name)


def _why(error: LithifyError, folder: PurePath) -> str:
    if not is_remote(folder):
        return error.message if storage_of(folder).is_folder(folder.parent) else "it is not there"
    if isinstance(error, NotFound):
        from lithify.files.bucket.client import server

        return f"it looks at another bucket of this name, at {server() or 'AWS'}"
    return error.message


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
