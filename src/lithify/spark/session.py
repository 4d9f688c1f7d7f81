"""One quiet Spark session per process, local or through Spark Connect.

A process has at most one JVM, and what a JVM was launched with cannot be changed. So `local_session` starts
it once and hands the same session out again; a session that somebody else started is shared through
`newSession()`, which leaves their SQL settings alone. Only public API is used on sessions, so that the code
above works on Spark Connect too.

Ctrl-C never reaches the JVM: PySpark starts it with SIGINT ignored. But PySpark's own handler then calls the
JVM on the connection that the interrupted call still holds, which fails, prints traces and leaves the job
running. Ours cancels this session's jobs from another thread and raises KeyboardInterrupt, nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import py4j
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lithify.compute.wire import SparkChoice
from lithify.errors import Unavailable
from lithify.files.scratch import Scratch
from lithify.spark import class_archive
from lithify.spark.executors import PARTITIONS_BY_CORES
from lithify.spark.java import JavaHome, cache_folder, find_java, launcher_home, write_atomically
from lithify.spark.target import check_answers, check_remote, default_driver_memory, is_local, local_cores, shown

_CANCEL_SECONDS_MAX = 5
_PY4J_FOLDER = str(Path(py4j.__file__).parent)
# Whoever sets one of these has decided how many executors there are.
_ALLOCATION = {"spark.dynamicAllocation.enabled", "spark.executor.instances", "spark.cores.max"}
_Handler = Callable[[int, FrameType | None], Any] | int | None

# PythonGatewayServer has its own level because Spark otherwise announces a default one for its shell. What ends a
# stream is raised where somebody waits for it; MicroBatchExecution would print it with its traces as well.
_LOG4J = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} spark %p %c{1}: %m%n%ex{short}
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
logger.stream.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.stream.level = off
"""

_lock = threading.RLock()
_current: SparkSession | None = None
_users = 0
_started_here = False


@dataclass(frozen=True)
class SparkOptions(SparkChoice):
    extra_conf: Mapping[str, str] = field(default_factory=dict)
    ui: bool = False
    app_name: str = "lithify"


def local_session(options: SparkOptions | None = None) -> SparkSession:
    """This process's session: the running one if it is alive, otherwise a new one. Give it back with `release`.

    While a session is alive, `options` that differ from those it was started with have no effect.
    """
    global _current, _users
    options = options or SparkOptions()
    with _lock:
        if _current is None or not is_alive(_current):
            _current, _users = _connect(options) if options.remote else _start(options), 0
        _users += 1
        return _current


def release(session: SparkSession) -> None:
    """Stop a session of `local_session` when its last user gives it back, unless somebody else started it."""
    global _current, _users
    with _lock:
        if session is not _current:
            return
        _users -= 1
        if _users <= 0:
            _current = None
            if _started_here:
                session.stop()


def is_alive(session: SparkSession) -> bool:
    """Whether the session still answers: False once it was stopped or its JVM or server died. Runs no job."""
    try:
        # Cheap, and the only such call that notices a stopped context as well as a dead JVM.
        return session.range(1).schema is not None
    except Exception:
        return False


def _connect(options: SparkOptions) -> SparkSession:
    global _started_here
    assert options.remote is not None
    _started_here = True
    check_remote(options.remote)
    try:
        builder = SparkSession.builder.remote(options.remote)
        for name, value in (_sql_conf(options) | dict(options.extra_conf)).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except Exception as error:
        raise Unavailable(
            f"Spark Connect at {shown(options.remote)} could not be used: {error}. Check the address and the server.",
            remote=shown(options.remote),
        ) from error


def _start(options: SparkOptions) -> SparkSession:
    global _started_here
    _forget_dead_jvm()
    shared = _share_running(options)
    _started_here = shared is None
    if shared is not None:
        return shared
    check_answers(options.master, "the Spark master")
    java = find_java()
    cache = cache_folder()
    scratch = Scratch("spark")
    atexit.register(_clean_up, scratch)
    (scratch.path / "tmp").mkdir()
    environment = {"JAVA_HOME": str(launcher_home(java, cache))}
    if is_local(options.master):
        environment |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    elif (python := options.extra_conf.get("spark.pyspark.python")) is not None:
        # PySpark itself heeds this setting only where spark-submit starts it.
        environment["PYSPARK_PYTHON"] = python
    builder = SparkSession.builder.master(options.master).appName(options.app_name)
    for name, value in _launch_conf(options, java, cache, scratch.path).items():
        builder = builder.config(name, value)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with _environment(environment):
            session = builder.getOrCreate()
    except Exception as error:
        fetched = "spark.jars.packages" in options.extra_conf
        hint = (
            ". Are the packages to be had that spark.jars.packages (or s3a = packages) has it fetch?" if fetched else ""
        )
        raise Unavailable(
            f"Spark did not start on Java {java.version} at {java.home}, master {options.master}: {error}{hint}",
            master=options.master,
        ) from error
    _handle_interrupts(session, handler)
    return session


def _handle_interrupts(session: SparkSession, before: _Handler) -> None:
    """Replace PySpark's SIGINT handler: by the caller's own if there was one, otherwise by one that works."""

    def cancel() -> None:
        with contextlib.suppress(Exception):
            session.interruptAll()

    def on_interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        canceller = threading.Thread(target=cancel, daemon=True)
        canceller.start()
        canceller.join(_CANCEL_SECONDS_MAX)
        _give_up_connection()
        raise KeyboardInterrupt

    for name in (None, "py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_not_from_py4j)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt if before is signal.default_int_handler else before)


def _give_up_connection() -> None:
    """Close this thread's connection to the JVM, which the interrupted call has left with an answer that nobody reads.

    The next call makes a new one. An open one Py4J would have the JVM close by its ports, of which one is the same for
    all connections: those that were made since would die with it.
    """
    if SparkContext._gateway is not None:
        connection = SparkContext._gateway._gateway_client.get_thread_connection()
        if connection is not None:
            connection.close()


def _not_from_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs an interrupted call with its traceback, also on the root logger; the exception is raised anyway."""
    return not record.pathname.startswith(_PY4J_FOLDER)


def _share_running(options: SparkOptions) -> SparkSession | None:
    """A session beside the one that somebody else started in this process, with SQL settings of its own."""
    context = SparkContext._active_spark_context
    if context is None:
        return None
    running = SparkSession.builder.getOrCreate()
    if not is_alive(running):
        with contextlib.suppress(Exception):
            context.stop()
        return None
    shared = running.newSession()
    for name, value in _sql_conf(options).items():
        shared.conf.set(name, value)
    return shared


def _forget_dead_jvm() -> None:
    """Make PySpark able to start again after its JVM died.

    PySpark keeps the connection to its JVM in class attributes and offers no public way to drop it, so that
    `getOrCreate()` would go on failing until the process ends. This is the one place that changes them.
    """
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None or process.poll() is None:
        return
    context = SparkContext._active_spark_context
    if context is not None:
        # The first call fails on the dead connection, the second then clears what is left in Python.
        for _ in range(2):
            with contextlib.suppress(Exception):
                context.stop()
    SparkContext._gateway = None
    SparkContext._jvm = None


def _sql_conf(options: SparkOptions) -> dict[str, str]:
    """Settings that any session can take at run time, also through Spark Connect."""
    conf = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    partitions = options.shuffle_partitions
    if partitions is None and options.remote is None and is_local(options.master):
        partitions = 2 * local_cores(options.master)
    if partitions is not None:
        conf["spark.sql.shuffle.partitions"] = str(partitions)
    elif "spark.sql.shuffle.partitions" not in options.extra_conf:
        conf[PARTITIONS_BY_CORES] = "true"
    return conf


def _cluster_conf(options: SparkOptions) -> dict[str, str]:
    """Executors come when there is work and go when there is none: otherwise the first of two applications on a
    standalone cluster would keep all of its cores, idle or not, and the second wait for ever.
    """
    conf = {}
    if options.executor_memory is not None:
        conf["spark.executor.memory"] = options.executor_memory
    if options.executor_cores is not None:
        conf["spark.executor.cores"] = str(options.executor_cores)
    if not _ALLOCATION & set(options.extra_conf):
        conf |= {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.enabled": "true",
            "spark.dynamicAllocation.shuffleTracking.timeout": "120s",
            "spark.dynamicAllocation.executorIdleTimeout": "30s",
        }
    return conf


def _launch_conf(options: SparkOptions, java: JavaHome, cache: Path, scratch: Path) -> dict[str, str]:
    """Settings that take effect only when the JVM starts, then those of every session, then the caller's."""
    conf = {
        "spark.driver.memory": options.driver_memory or default_driver_memory(),
        "spark.ui.enabled": str(options.ui).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.python.worker.reuse": "true",
    }
    if is_local(options.master):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    else:
        conf |= _cluster_conf(options)
    conf |= _sql_conf(options)
    conf |= options.extra_conf
    jvm_options = [f"-Dlog4j2.configurationFile={_log4j_file(cache)}"]
    # Libraries unpack themselves there, and a JVM that is killed leaves them behind.
    jvm_options += [f"-Djava.io.tmpdir={scratch / 'tmp'}"]
    asked = options.extra_conf.get("spark.driver.extraJavaOptions", "")
    if class_archive.RECORD_FLAG not in asked:
        jvm_options += class_archive.jvm_options(java, cache)
    # Spark splits this at blanks outside double quotes; what the caller asks for comes last and wins.
    conf["spark.driver.extraJavaOptions"] = " ".join([*(f'"{option}"' for option in jvm_options), asked]).strip()
    return conf


def _log4j_file(cache: Path) -> Path:
    file = cache / "log4j2-quiet.properties"
    if not (file.is_file() and file.read_text() == _LOG4J):
        write_atomically(file, _LOG4J)
    return file


def jvm_exit_code(wait_s: float = 0) -> int | None:
    """How this process's JVM ended; None while it lives, for up to `wait_s`, and where there was none."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    return process.returncode


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the JVM that is launched inside, and put the old ones back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _clean_up(scratch: Scratch) -> None:
    if _current is not None and is_alive(_current):
        with contextlib.suppress(Exception):
            _current.stop()
    scratch.close()
