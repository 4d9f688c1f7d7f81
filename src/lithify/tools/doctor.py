"""Is this machine, and this lake, fit for work? Each check measures one thing and says what to do about it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from lithify.core.optional import has_spark
from lithify.core.wording import plural
from lithify.errors import LithifyError, NotFound
from lithify.files.addresses import is_remote
from lithify.files.storage import Storage
from lithify.settings import Settings
from lithify.sql.isolated import landlock
from lithify.tools.bucket_checks import check_bucket, check_copies
from lithify.tools.check import Check, Status

if TYPE_CHECKING:
    from lithify.lake.lake import Lake

TESTED = {
    "pyspark": "4.3",
    "deltalake": "1.6",
    "pyarrow": "26",
    "datafusion": "55",
    "numpy": "2",
    "pandas": "2",
}
FOR_SPARK = ("pyspark", "pandas")
DISK_FREE_BYTES_MIN = 2**30
DISK_FREE_BYTES_LOW = 10 * 2**30
FSYNC_MS_SLOW = 10.0
FSYNC_ROUNDS = 15
MEMORY_BYTES_LOW = 4 * 2**30
PENDING_FILES_MANY = 500
LOOKS_AT_ONCE = 16  # where each is a request


def examine(
    settings: Settings, lake: PurePath | None, opened: Lake | None = None, seconds_max: float = math.inf
) -> list[Check]:
    """`opened`: the lake, where it is open already. Tables that `seconds_max` leaves no time for are left out."""
    ends_s = time.monotonic() + seconds_max
    checks = [check_python(), *check_libraries(), check_cores(), check_memory(), check_cage()]
    if has_spark():
        checks += [check_java(), *_safely("spark", lambda: [check_spark(settings)])]
    if lake is not None and is_remote(lake):
        checks += _safely("copies", lambda: [check_copies(settings)])
        checks += (reached := _safely("bucket", lambda: check_bucket(settings, lake)))
        if any(check.status is Status.fail for check in reached):
            return checks
    else:
        folder = Path(lake) if lake is not None and Path(lake).is_dir() else Path.cwd()
        checks += _safely("disk", lambda: [check_disk(folder)])
        checks += _safely("fsync", lambda: [check_fsync(folder)])
    if lake is not None:
        checks += _safely("lake", lambda: check_lake(settings, lake, opened, ends_s))
    return checks


def _safely(name: str, look: Callable[[], list[Check]]) -> list[Check]:
    try:
        return look()
    except LithifyError as error:
        return [Check(name, Status.fail, error.message)]
    except OSError as error:
        path = error.filename or name
        return [
            Check(
                name,
                Status.fail,
                f"{path}: {error.strerror or error}",
                "check that the folder is there and that you may write to it",
            )
        ]


def check_python() -> Check:
    version = platform.python_version()
    return Check("python", Status.ok, version, values={"version": version})


def check_libraries(tested: dict[str, str] | None = None) -> Iterator[Check]:
    for name, wanted in (tested or TESTED).items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if name in FOR_SPARK and not has_spark():
                yield Check(name, Status.ok, 'not installed; Spark needs it: pip install "lithify[spark]"')
            else:
                yield Check(name, Status.fail, "not installed", f"pip install '{name}=={wanted}.*'")
            continue
        values = {"version": version, "tested": wanted}
        if version == wanted or version.startswith(f"{wanted}."):
            yield Check(name, Status.ok, version, values=values)
        else:
            yield Check(
                name,
                Status.warn,
                version,
                f"tested with {wanted}: pip install '{name}=={wanted}.*' if something is odd",
                values,
            )


def check_java() -> Check:
    from lithify.spark.java import find_java

    try:
        java = find_java()
    except LithifyError as error:
        return Check(
            "java", Status.fail, "none for Spark; small writes, SQL and local folds work without", error.message
        )
    return Check(
        "java",
        Status.ok,
        f"{java.version} ({java.source}, {java.home})",
        values={"version": java.version, "home": str(java.home), "source": java.source},
    )


def check_spark(settings: Settings) -> Check:
    """Where Spark would run, and whether anybody listens there. Starts nothing."""
    from lithify.spark import target

    if settings.spark_remote is not None:
        target.check_remote(settings.spark_remote)
        where = target.shown(settings.spark_remote)
        return Check("spark", Status.ok, f"Spark Connect at {where} answers", values={"remote": where})
    master = settings.spark_master
    values: dict[str, Any] = {"master": master}
    if target.is_local(master):
        cores, heap = target.local_cores(master), settings.spark_driver_memory or target.default_driver_memory()
        values |= {"cores": cores, "driver_memory": heap}
        return Check(
            "spark", Status.ok, f"on this machine ({master}: {plural(cores, 'core')}, {heap} heap)", values=values
        )
    target.check_answers(master, "the Spark master")
    if target.endpoints(master):
        return Check("spark", Status.ok, f"the cluster at {master} answers", values=values)
    return Check("spark", Status.ok, f"on a cluster ({master}), which is asked when there is work", values=values)


def check_cores() -> Check:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count < 2:
        return Check("cores", Status.warn, str(count), "bulk work on Spark wants at least 2", {"count": count})
    return Check("cores", Status.ok, str(count), values={"count": count})


def check_memory() -> Check:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    available = total
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = min(total, next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")))
    found = f"{available / 2**30:.1f} GiB free of {total / 2**30:.1f} GiB"
    values = {"available_bytes": available, "total_bytes": total}
    if available < MEMORY_BYTES_LOW:
        return Check(
            "memory",
            Status.warn,
            found,
            "Spark needs about 4 GiB: close something, or set LITHIFY_SPARK_DRIVER_MEMORY=1g",
            values,
        )
    return Check("memory", Status.ok, found, values=values)


def check_cage() -> Check:
    """Whether the kernel keeps queries of a service to the files of their tables."""
    version = landlock.abi()
    if version:
        return Check("cage", Status.ok, f"Landlock {version} holds queries of a service", values={"landlock": version})
    return Check(
        "cage",
        Status.warn,
        "no Landlock: the kernel does not hold queries of a service to the files of their tables",
        "Linux 5.13 or newer has it, if it is among the security modules that the kernel was started with",
        {"landlock": 0},
    )


def check_disk(folder: Path) -> Check:
    usage = shutil.disk_usage(folder)
    found = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f} GiB on {folder}"
    values = {"free_bytes": usage.free, "total_bytes": usage.total, "folder": str(folder)}
    if usage.free < DISK_FREE_BYTES_MIN:
        return Check("disk", Status.fail, found, "free some space: writes are about to be refused", values)
    if usage.free < DISK_FREE_BYTES_LOW:
        why = "a fold writes the files it changes anew before the old ones can go: free some space"
        return Check("disk", Status.warn, found, why, values)
    return Check("disk", Status.ok, found, values=values)


def check_fsync(folder: Path) -> Check:
    """What a small durable write waits for: a new file, written, fsynced, its folder fsynced."""
    latencies: list[float] = []
    with tempfile.TemporaryDirectory(prefix=".lithify-doctor-", dir=folder) as scratch:
        for number in range(FSYNC_ROUNDS):
            started = time.perf_counter()
            _write_durably(Path(scratch) / str(number))
            latencies.append((time.perf_counter() - started) * 1000)
        links = _has_links(Path(scratch))
    p50, worst = statistics.median(latencies), max(latencies)
    found = f"{p50:.2f} ms for a durable file (worst of {FSYNC_ROUNDS}: {worst:.2f} ms)"
    values = {"p50_ms": round(p50, 3), "max_ms": round(worst, 3), "hard_links": links, "folder": str(folder)}
    if p50 > FSYNC_MS_SLOW:
        why = "every write waits for several of these: put the lake on a local SSD"
        return Check("fsync", Status.warn, found, why, values)
    if not links:
        why = "this file system has no hard links: a fold copies files where it could link them"
        return Check("fsync", Status.warn, found, why, values)
    return Check("fsync", Status.ok, found, values=values)


def _write_durably(path: Path) -> None:
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        os.write(fd, b"x" * 4096)
        os.fsync(fd)
    finally:
        os.close(fd)
    fd = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _has_links(folder: Path) -> bool:
    try:
        os.link(folder / "0", folder / "link")
    except OSError:
        return False
    return True


def check_lake(settings: Settings, path: PurePath, opened: Lake | None = None, ends_s: float = math.inf) -> list[Check]:
    """Open every table; look whether the files that its logs name are there, and as long as they were written."""
    from lithify.lake.lake import Lake

    checks: list[Check] = []
    given = contextlib.nullcontext(opened) if opened is not None else None
    with given or Lake(path, create=False, settings=settings) as lake:
        names = lake.tables()
        checks.append(
            Check(
                "lake",
                Status.ok,
                f"{lake.path}: {plural(len(names), 'table')}",
                values={"path": str(lake.path), "tables": len(names)},
            )
        )
        for number, name in enumerate(names):
            if time.monotonic() >= ends_s:
                found = f"{number:,} of {len(names):,} were looked at in the time there was"
                advice = "`lithify doctor` where the lake is looks at all of them"
                checks.append(Check("tables", Status.warn, found, advice))
                break
            checks.append(check_table(lake, name))
        checks += check_pipelines(lake)
    return checks


def check_pipelines(lake: Any) -> list[Check]:
    """What is declared, and whether its last run went well. Nothing is run."""
    try:
        found = lake.pipeline_status()
        lake.pipeline_runner.check()
    except LithifyError as error:
        return [Check("pipelines", Status.fail, "the declarations do not hold", error.message)]
    failing = [status for status in found if status.failures]
    if not found:
        return []
    declared = f"{len(found)} declared, {len(failing)} failing"
    values = {"declared": len(found), "failing": [status.pipeline for status in failing]}
    if failing:
        advice = "; ".join(f"{status.pipeline}: {status.error}" for status in failing)
        return [Check("pipelines", Status.warn, declared, advice, values)]
    return [Check("pipelines", Status.ok, declared, values=values)]


def check_table(lake: Any, name: str) -> Check:
    from lithify.lake.internals import internals

    label = f"table {name}"
    try:
        table = lake.table(name)
        snapshot = table.snapshot()
    except LithifyError as error:
        return Check(label, Status.fail, "damaged", error.message, {"code": error.code})
    changes = internals(table).handles.changes.log.path
    named = [
        (folder / file.path, file.size_bytes)
        for folder, files in ((table.base_path, snapshot.base), (changes, snapshot.changes))
        for file in files
    ]
    damaged = _damaged(named, internals(lake).runtime.store)
    found = (
        f"{snapshot.base_rows:,} rows in base, {snapshot.pending_rows:,} changes pending in "
        f"{len(snapshot.changes):,} files"
    )
    values = {
        "base_rows": snapshot.base_rows,
        "pending_rows": snapshot.pending_rows,
        "pending_files": len(snapshot.changes),
        "seq": snapshot.seq,
    }
    if damaged:
        more = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
        return Check(
            label,
            Status.fail,
            found,
            f"{damaged[0]}{more}: restore from a copy, or read as of an older seq",
            {**values, "damaged": damaged},
        )
    if len(snapshot.changes) > PENDING_FILES_MANY:
        return Check(label, Status.warn, found, f"reads merge all of them: `lithify fold {name}`", values)
    return Check(label, Status.ok, found, values=values)


def _damaged(named: list[tuple[PurePath, int]], store: Storage) -> list[str]:
    """What is wrong with files that logs name with their sizes."""
    if not store.remote:
        return [problem for path, size_bytes in named if (problem := _problem(Path(path), size_bytes))]

    def look(path: PurePath, size_bytes: int) -> str | None:
        try:
            return _other_size(path, store.size(path), size_bytes) or _replaced(path, store)
        except NotFound:
            return f"{path} is missing"
        except LithifyError as error:
            return f"{path} cannot be read: {error.message}"

    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        return [problem for problem in pool.map(look, *zip(*named, strict=True)) if problem] if named else []


def _replaced(path: PurePath, store: Storage) -> str | None:
    """Another object of the same size is told by the copy of the first, where there is one."""
    from lithify.files.local_files import is_other_than_copy

    if not is_other_than_copy(store, path):
        return None
    return f"{path} is another object than when it was read here: somebody has replaced it"


def _other_size(path: PurePath, size: int, size_bytes: int) -> str | None:
    return None if size == size_bytes else f"{path} has {size:,} bytes instead of {size_bytes:,}"


def _problem(path: Path, size_bytes: int) -> str | None:
    try:
        return _other_size(path, path.stat().st_size, size_bytes)
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
