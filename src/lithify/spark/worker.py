"""The Spark worker: a child process that runs orders from its parent on one Spark session, until told to end.

Orders come on standard input, answers and heartbeats go out on standard output (see `compute/wire.py`). Both are moved
to private descriptors first: whatever Spark, the JVM or a task prints goes to standard error. Each order runs in a
thread of its own on the session, which is started with the first one and replaced if its JVM has died.

It never outlives its parent. The end of standard input means: end, at once if orders are running (nobody waits for
them any more), else after stopping Spark in order; so does another parent than the one it was started by, which also
shows when a forked process still holds the pipe open. Its JVM and all other processes of its session end with it.

Memory: one budget, of which the JVM's heap gets a third. What is left, without some for the JVM's other needs, is
divided among the tasks that run at the same time; where that would be too little for each, fewer run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from lithify.compute import processes, wire
from lithify.core.compute_errors import JVM_ENDED, as_error, classify, classify_exit
from lithify.errors import OutOfResources
from lithify.files.addresses import path_of
from lithify.files.local_files import keep_copies_in
from lithify.settings import memory_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lithify.spark.session import SparkOptions

_MIB, _GIB = 2**20, 2**30
NICENESS = 10
_STOP_SECONDS_MAX = 20
_JVM_SECONDS_MAX = 5
# An interpreter with Arrow and pandas loaded takes half of this before its task begins.
TASK_BYTES_MIN = 512 * _MIB
_JVM_BESIDES_HEAP_BYTES = 384 * _MIB
_HEAP_BYTES_MIN, _HEAP_BYTES_MAX = 512 * _MIB, 8 * _GIB
# Exit codes for a heap that is used up: the JVM's, when told to exit then, and Spark's.
_JVM_OUT_OF_MEMORY = (3, 52)
_PLAIN_LOCAL = re.compile(r"local(\[(\*|\d+)\])?")


@dataclass(frozen=True)
class WorkerMemory:
    """How much memory each part may take; None: not ours to say."""

    heap: str | None
    cores: int | None
    task_bytes_max: int | None


def budget(total_bytes: int, cores: int, heap: str | None = None) -> WorkerMemory:
    """Divide the memory of a local worker. A heap that the user asks for counts as asked."""
    heap_bytes = memory_bytes(heap) if heap else min(max(total_bytes // 3, _HEAP_BYTES_MIN), _HEAP_BYTES_MAX)
    for_tasks = max(total_bytes - heap_bytes - _JVM_BESIDES_HEAP_BYTES, TASK_BYTES_MIN)
    at_once = min(cores, for_tasks // TASK_BYTES_MIN)
    return WorkerMemory(f"{heap_bytes // _MIB}m", at_once, for_tasks // at_once)


class Order:
    """One order that runs, and how far it is."""

    def __init__(self, message: dict[str, Any], scratch: Path, counted: bool) -> None:
        self.id: str = message["id"]
        self.function: str = message["function"]
        self.on_driver: bool = message["where"] == "driver"
        self.tasks: list[str] = message["tasks"]
        self.tally: str | None = None
        if counted and not self.on_driver:
            self.tally = str(scratch / f"tally-{self.id}")
            Path(self.tally).touch()

    def done(self) -> int | None:
        from lithify.spark.tasks import done_count

        return None if self.tally is None else min(done_count(self.tally), len(self.tasks))

    def close(self) -> None:
        if self.tally is not None:
            Path(self.tally).unlink(missing_ok=True)


class Worker:
    def __init__(self, config: wire.Config, answers: BinaryIO) -> None:
        self._config, self._answers = config, answers
        self._sending = threading.Lock()
        self._orders: dict[str, Order] = {}
        self._threads = ThreadPoolExecutor(config.jobs_max, "order")
        self._starting = threading.Lock()
        self._options: SparkOptions | None = None
        self._current: SparkSession | None = None
        self._budget = WorkerMemory(None, None, None)
        self.leaving = threading.Event()

    # -- orders

    def take(self, line: bytes) -> None:
        message = json.loads(line)
        order = Order(message, Path(self._config.scratch), counted=_is_local(self._config))
        self._orders[order.id] = order
        self._threads.submit(self._run, order)

    def _run(self, order: Order) -> None:
        answer: dict[str, Any]
        try:
            answer = {"id": order.id, "results": [wire.pack(result) for result in self._results(order)]}
        except BaseException as error:
            traceback.print_exc()
            known = self._jvm_death(error) or as_error(error, f"{order.function} failed on the Spark worker")
            failure = classify(known)
            answer = {"id": order.id, "error": wire.pack(known), "class": failure.kind, "reason": failure.reason}
        finally:
            del self._orders[order.id]
            order.close()
        self._send(answer)

    def _results(self, order: Order) -> list[Any]:
        from lithify.spark.tasks import SPARK_ERRORS, compute_failed, run_tasks

        function = wire.resolve(order.function, self._config.modules)
        tasks = [wire.unpack(task) for task in order.tasks]
        session = self._session()
        if not order.on_driver:
            return run_tasks(session, function, tasks, tally=order.tally)
        try:
            return [function(session, task) for task in tasks]
        except SPARK_ERRORS as error:
            raise compute_failed(error) from error

    def _session(self) -> SparkSession:
        from lithify.spark.executors import prepare
        from lithify.spark.session import local_session

        with self._starting:
            if self._options is None:
                self._options, self._budget = _spark_options(self._config)
            self._current = local_session(self._options)
            if self._config.root is not None:
                prepare(self._current, path_of(self._config.root), self._config.wait_s_max)
            return self._current

    def _jvm_death(self, error: BaseException) -> OutOfResources | None:
        """The error to report instead of the bridge's complaint that nobody answers."""
        failure = classify(error)
        if failure.kind == "permanent":
            return None
        from lithify.spark.session import is_alive, jvm_exit_code

        # A JVM that closes its connections may take a moment to be gone. The bridge does not always say that it did.
        silent = failure.reason == JVM_ENDED or (self._current is not None and not is_alive(self._current))
        code = jvm_exit_code(_JVM_SECONDS_MAX if silent else 0)
        if code is None:
            return None
        if code in _JVM_OUT_OF_MEMORY:
            heap = self._budget.heap or "its"
            return OutOfResources(f"Spark's JVM ran out of memory ({heap} heap)", reason="the JVM ran out of memory")
        reason = f"Spark's JVM died ({classify_exit(code).reason})"
        return OutOfResources(reason, reason=reason)

    # -- heartbeat

    def beat(self) -> None:
        number = 0
        while not self.leaving.wait(wire.HEARTBEAT_S):
            if os.getppid() != self._config.parent:
                self.end_now()
            number += 1
            rss_bytes = processes.rss_bytes(os.getpid())
            orders = list(self._orders.values())
            for order in orders:
                of = None if order.on_driver else len(order.tasks)
                self._send(
                    {"heartbeat": number, "id": order.id, "done": order.done(), "of": of, "rss_bytes": rss_bytes}
                )
            if not orders:
                self._send({"heartbeat": number, "id": None, "rss_bytes": rss_bytes})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            with self._sending:
                self._answers.write(wire.line(message))
                self._answers.flush()
        except OSError:
            self.end_now()

    # -- the end

    def leave(self) -> None:
        """The parent has no further orders, or is gone."""
        if self._orders:
            self.end_now()
        self.leaving.set()
        late = threading.Timer(_STOP_SECONDS_MAX, self.end_now)
        late.daemon = True
        late.start()
        if self._current is not None:
            from lithify.spark.session import is_alive

            if is_alive(self._current):
                with contextlib.suppress(Exception):
                    self._current.stop()
        self.end_now()

    def end_now(self) -> NoReturn:
        """End all processes of this session; this one last."""
        if os.getsid(0) == os.getpid():
            processes.kill_session(os.getpid(), spare=os.getpid())
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.waitpid(-1, 0)
        shutil.rmtree(self._config.scratch, ignore_errors=True)
        os._exit(0)


def _is_local(config: wire.Config) -> bool:
    return config.remote is None and config.master.startswith("local")


def _spark_options(config: wire.Config) -> tuple[SparkOptions, WorkerMemory]:
    from lithify.spark.session import SparkOptions
    from lithify.spark.target import local_cores, machine_bytes
    from lithify.spark.tasks import TASK_BYTES_MAX

    master, share = config.master, WorkerMemory(config.driver_memory, None, None)
    conf = dict(config.conf)
    if _is_local(config):
        total_bytes = config.memory_bytes or min(max(machine_bytes() // 2, _GIB), 16 * _GIB)
        share = budget(total_bytes, local_cores(master), config.driver_memory)
        if _PLAIN_LOCAL.fullmatch(master):
            master = f"local[{share.cores}]"
        conf[TASK_BYTES_MAX] = str(share.task_bytes_max)
        asked = conf.get("spark.driver.extraJavaOptions", "")
        conf["spark.driver.extraJavaOptions"] = " ".join([*_jvm_options(config.scratch), asked]).strip()
    chosen = {**wire.spark_choice(config), "master": master, "driver_memory": share.heap}
    options = SparkOptions(**chosen, extra_conf=conf, app_name="lithify worker")
    return options, share


def _jvm_options(scratch: str) -> list[str]:
    return [
        # A JVM without heap answers late or wrong; one that is gone is replaced.
        "-XX:+ExitOnOutOfMemoryError",
        # No files outside of scratch: a JVM that is killed leaves them.
        f'"-Djava.io.tmpdir={scratch}"',
        "-XX:-UsePerfData",
    ]


def _move_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the two pipes to the parent for ourselves; children get /dev/null and standard error instead."""
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return orders, answers


def _use_scratch(config: wire.Config) -> None:
    """Temporary files of this process, the JVM and the tasks go where the parent can remove them."""
    tempfile.tempdir = config.scratch
    os.environ["TMPDIR"] = config.scratch
    # Arrow's allocator would otherwise take 1 GiB from a task's limit in advance, whether it is used or not.
    os.environ.setdefault("MIMALLOC_ARENA_EAGER_COMMIT", "0")
    if config.python_path:
        sys.path[:0] = config.python_path
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*config.python_path, *([before] if before else [])])


def main() -> NoReturn:
    # The parent decides about Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whoever reads and writes on this machine goes first; on an idle one it takes nothing.
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    orders, answers = _move_pipes()
    config = wire.Config.read(orders.readline())
    _use_scratch(config)
    if config.copies_folder is not None:
        keep_copies_in(Path(config.copies_folder), config.copies_bytes_max)
    worker = Worker(config, answers)
    threading.Thread(target=worker.beat, name="heartbeat", daemon=True).start()
    for line in orders:
        worker.take(line)
    worker.leave()
    raise AssertionError("the worker has left")


if __name__ == "__main__":
    main()
