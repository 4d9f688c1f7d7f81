"""Processes with fewer rights than they need."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import stat
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

from lithify import Lake, LithifyError, Settings
from support.stopping import Descriptors, StoppingStore

NOBODY = 65534


def ids(lake: Lake) -> dict[str, list[int]]:
    return {name: sorted(lake.table(name).to_arrow().column("id").to_pylist()) for name in lake.tables()}


def error_of(operation: Callable[[], Any]) -> LithifyError | None:
    try:
        operation()
    except LithifyError as error:
        return error
    return None


def remove(path: Path) -> None:
    shutil.rmtree(path)


def make_read_only(path: Path) -> None:
    path.parent.chmod(0o755)
    for parent in (path, *path.rglob("*")):
        parent.chmod(0o555 if parent.is_dir() else 0o444)


def make_writable(path: Path) -> None:
    for parent in (path, *path.rglob("*")):
        parent.chmod(stat.S_IRWXU if parent.is_dir() else stat.S_IRUSR | stat.S_IWUSR)


def write_as_nobody(path: str, results: Queue[Any]) -> None:
    # Once with all rights, so that everything is imported that nobody may not read.
    with Lake(path) as lake:
        lake.table("a.t").to_arrow()
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with Lake(path) as lake:
        table = lake.table("a.t")
        operations: dict[str, Any] = {
            "upsert": lambda: table.upsert([{"id": 9, "v": "x"}]),
            "fold": table.fold,
            "create": lambda: lake.create_table("a.new", table.schema),
            "read": lambda: table.to_arrow().num_rows,
        }
        for name, operation in operations.items():
            try:
                answer = ("ok", str(operation()))
            except LithifyError as error:
                answer = (type(error).__name__, str(error))
            results.put((name, *answer))


def write_with_size_limit(path: str, results: Queue[Any]) -> None:
    with Lake(path) as lake:
        table = lake.table("a.t")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        try:
            table.upsert([{"id": number, "v": str(number * 7919)} for number in range(20_000)])
            answer = ("ok", "")
        except LithifyError as error:
            answer = (type(error).__name__, str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        results.put(answer)


def write_short_of_descriptors(path: str, results: Queue[Any], lasting: bool) -> None:
    """Write rows 0, 1, … each with another moment at which all descriptors are gone, for the rest of the write or for
    one storage call, until one write has no such moment left. Answers what the first attempt at each came to.
    """
    store, answers = StoppingStore(), []
    with Lake(path, settings=Settings(checkpoint_every=3), store=store) as lake:
        table = lake.table("a.t")
        for number in range(6):
            answers.append("Commit")
            table.upsert([{"id": number}], f"b{number}", missing="null")
        table.to_arrow()
        descriptors = Descriptors()
        for nth in itertools.count(1):
            number = len(answers)
            store.arm(nth, descriptors.take, None if lasting else descriptors.give_back)
            try:
                table.upsert([{"id": number}], f"b{number}", missing="null")
                answers.append("Commit")
            except LithifyError as error:
                answers.append(type(error).__name__)
            finally:
                store.disarm()
                descriptors.give_back()
            assert table.upsert([{"id": number}], f"b{number}", missing="null").rows == 1
            assert table.to_arrow().num_rows == len(answers)
            if len(store.calls) < nth:
                break
    results.put(answers)
