"""A real Spark cluster on this machine, from the pip package: a master, workers, and a Spark Connect server.

Every daemon is a process of its own session, with its JVM's address under 127.0.0.0/8 and a port that the system chose,
and is ended by its id. The two workers have different addresses, so that Spark takes them for two machines: it starts
no second attempt at a task on the machine that runs the first.

Executors run a Python that has pyspark, pyarrow, numpy and pandas, and nothing else. That Python can be held: while a
`Gate` is armed, the first processes that make a file durable stop there until they are let go or killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import venv
from collections.abc import Iterable
from pathlib import Path

from lithify.compute.processes import end_session
from lithify.spark.java import cache_folder, find_java, launcher_home
from support.waiting import WAIT_S_MAX, eventually

EXECUTOR_PACKAGES = ("pyarrow", "numpy", "numpy.libs", "pandas", "dateutil", "pytz", "tzdata", "six.py")
_SPARK_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_CONNECT_PORT = re.compile(r"Spark Connect server started at: \S*?:(\d+)")
_WORKER_READY = re.compile(r"Successfully registered with master")

_GATE = """
import os, time
_fsync = os.fsync
_folder = {folder!r}

def fsync(fd):
    try:
        tokens = os.listdir(_folder)
    except OSError:
        tokens = []
    for token in tokens:
        if token.startswith("token-"):
            try:
                os.rename(f"{{_folder}}/{{token}}", f"{{_folder}}/here-{{os.getpid()}}")
            except OSError:
                continue
            until = time.monotonic() + {wait_s_max}
            while not os.path.exists(f"{{_folder}}/go") and time.monotonic() < until:
                time.sleep(0.02)
            break
    return _fsync(fd)

os.fsync = fsync
"""


class Gate:
    """Holds the first processes on executors that make a file durable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)

    def arm(self, processes: int = 1) -> None:
        self.disarm()
        for number in range(processes):
            (self.folder / f"token-{number}").touch()

    def disarm(self) -> None:
        """Nobody is held from now on. Those who are held go on with `open`."""
        for entry in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                entry.unlink()

    def stopped(self) -> int:
        """The id of a process that is held, as soon as there is one."""
        entry = eventually(lambda: next(self.folder.glob("here-*"), None), "a task at the gate")
        return int(entry.name.removeprefix("here-"))

    def open(self) -> None:
        (self.folder / "go").touch()


def installed() -> Path:
    import pyarrow

    return Path(pyarrow.__file__).parents[1]


def executor_python(folder: Path, gate: Gate, packages: Iterable[str] = EXECUTOR_PACKAGES) -> Path:
    """An environment with these packages of ours, whose processes stop at the gate."""
    venv.create(folder, with_pip=False, symlinks=True)
    (inside,) = folder.glob("lib/python*/site-packages")
    for name in packages:
        if (installed() / name).exists():
            (inside / name).symlink_to(installed() / name)
    (inside / "sitecustomize.py").write_text(_GATE.format(folder=str(gate.folder), wait_s_max=WAIT_S_MAX))
    return folder / "bin" / "python"


class Daemon:
    """One JVM of the cluster. What it says goes to a file."""

    def __init__(self, log: Path, program: str, *arguments: str, memory: str = "256m", **environment: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        java = launcher_home(find_java(), cache_folder())
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                ["bash", str(home / "bin" / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))},
                    "SPARK_HOME": str(home),
                    "JAVA_HOME": str(java),
                    "SPARK_DAEMON_MEMORY": memory,
                    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
                    "SPARK_LOCAL_DIRS": str(log.parent),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    **environment,
                },
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def says(self, pattern: re.Pattern[str]) -> re.Match[str]:
        def look() -> re.Match[str] | None:
            text = self.log.read_text(errors="replace")
            assert self.process.poll() is None, f"{self.process.args} ended:\n{text[-2000:]}"
            return pattern.search(text)

        return eventually(look, f"{pattern.pattern} in {self.log}")  # type: ignore[no-any-return]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        end_session(self.process.pid, WAIT_S_MAX)

    def stop(self) -> None:
        """End it, and what it has started: a worker's executors are in its session."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.kill()


class Cluster:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.gate = folder, Gate(folder / "gate")
        self.python = executor_python(folder / "python", self.gate)
        self._daemons: list[Daemon] = []
        self.workers: dict[str, Daemon] = {}
        program = "org.apache.spark.deploy.master.Master"
        self._master = self._start("master", "spark-class", program, *_address("127.0.0.1"))
        self.url = self._master.says(_SPARK_URL)[1]
        for host in ("127.0.0.1", "127.0.0.2"):
            self.start_worker(host)

    def _start(self, name: str, program: str, *arguments: str, **environment: str) -> Daemon:
        daemon = Daemon(self.folder / f"{name}-{len(self._daemons)}.log", program, *arguments, **environment)
        self._daemons.append(daemon)
        return daemon

    def start_worker(self, host: str) -> Daemon:
        work = self.folder / f"work-{host}-{len(self._daemons)}"
        size = ("--cores", "4", "--memory", "3g", "--work-dir", str(work))
        self.workers[host] = self._start(
            f"worker-{host}",
            "spark-class",
            "org.apache.spark.deploy.worker.Worker",
            *_address(host),
            *size,
            self.url,
            PYSPARK_PYTHON=str(self.python),
            SPARK_LOCAL_IP=host,
        )
        # A driver that came before it would get all of its executors on the other one.
        self.workers[host].says(_WORKER_READY)
        return self.workers[host]

    @property
    def conf_without_size(self) -> dict[str, str]:
        """For drivers on this machine."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.pyspark.python": str(self.python),
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }

    @property
    def conf(self) -> dict[str, str]:
        """Two executors of one core each, one on each worker. Workers claim more cores than there are, so that there
        is room for several drivers.
        """
        size = {"spark.cores.max": "2", "spark.executor.cores": "1", "spark.executor.memory": "512m"}
        return {**self.conf_without_size, **size}

    def stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()


class ConnectServer:
    """Spark Connect with a local master of two cores. Its Python has Lithify and all that it needs: streams call it on
    the server, where what a client ships does not reach.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.gate = folder, Gate(folder / "gate")
        self.python = executor_python(folder / "python", self.gate, [entry.name for entry in installed().iterdir()])
        conf = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.pyspark.python": str(self.python),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.sql.artifact.isolation.enabled": "true",
        }
        settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
        self._daemon = Daemon(
            folder / "connect.log",
            "spark-submit",
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--master",
            "local[2]",
            *settings,
            "spark-internal",
            memory="1g",
            PYSPARK_PYTHON=str(self.python),
        )
        self.url = f"sc://127.0.0.1:{self._daemon.says(_CONNECT_PORT)[1]}"

    def stop(self) -> None:
        self._daemon.stop()


def _address(host: str) -> tuple[str, ...]:
    return ("--host", host, "--port", "0", "--webui-port", "0")


def executor_of(python: int) -> int:
    """The JVM that a Python process on an executor works for."""
    pid = python
    while "java" not in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        assert pid > 1, f"{python} has no JVM above it"
    return pid


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
