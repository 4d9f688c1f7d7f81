"""Where Spark runs, as far as that can be told without Spark: which master or server, what it may take of this machine,
and whether anybody listens there.

    local[*]                 in this process's own JVM
    spark://host:7077        a standalone cluster; several masters with commas between them
    yarn, k8s://…            clusters whose own configuration says where they are
    sc://host:15002          a Spark Connect server, which decides all of this itself

Nobody listening is found within seconds. Spark itself would try for a minute, Spark Connect for ten.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lithify.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GIB = 2**30
CONNECT_PORT = 15002
CONNECT_WAIT_S = 5.0
_CONNECT_PACKAGES = {"grpc": "grpcio", "grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos"}


def is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def runs_here(spark: SparkSession) -> bool:
    """Whether tasks run on this process's own JVM and interpreter."""
    return not is_connect(spark) and is_local(spark.conf.get("spark.master", "") or "")


def identity(spark: SparkSession) -> tuple[str, str]:
    """What its executors belong to: an application, and on Spark Connect one client's session of it. Spark hands out
    further session objects of the same application, one for each micro-batch among them.
    """
    return spark.conf.get("spark.app.id", "") or "", str(getattr(spark, "session_id", ""))


def local_cores(master: str) -> int:
    """How many cores a local master uses: 1 for "local", 4 for "local[4]", all of them for "local[*]"."""
    match = re.match(r"local(?:\[(\d+|\*))?", master)
    asked = match[1] if match else None
    return (os.cpu_count() or 1) if asked == "*" else int(asked or 1)


def default_driver_memory() -> str:
    """About a third of this machine's (or container's) memory, from 1g to 8g."""
    return f"{min(max(machine_bytes() // 3 // _GIB, 1), 8)}g"


def machine_bytes() -> int:
    """Memory of this machine, or of the container that this process runs in."""
    total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total_bytes = min(total_bytes, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total_bytes


def endpoints(address: str) -> list[tuple[str, int]]:
    """Hosts and ports of an address, any of which may answer; none where only the cluster's configuration knows."""
    if address.startswith("sc://"):
        # Behind the host there may be a path with parameters, a token among them.
        return [_endpoint(address, address.split("/;", 1)[0], CONNECT_PORT)]
    if address.startswith("spark://"):
        hosts = address.removeprefix("spark://").split(",")
        return [_endpoint(address, f"spark://{host}", 7077) for host in hosts]
    return []


def _endpoint(address: str, url: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or port
    except ValueError:
        host = ""
    if not host:
        raise InvalidRequest(
            f"{shown(address)} is no address of Spark: write spark://host:7077, or sc://host:15002, parameters after /;"
        )
    return host, port


def shown(address: str) -> str:
    """An address without user and parameters, wherever these were put: a token is nobody's business."""
    return re.sub(r"//[^/@]*@", "//", re.split(r"/?[;?#]", address, maxsplit=1)[0])


def check_remote(remote: str) -> None:
    """That a Spark Connect address is one, and that somebody listens there."""
    if not remote.startswith("sc://"):
        raise InvalidRequest(f"spark_remote is {shown(remote)!r}: an address of Spark Connect is like sc://host:15002")
    missing = missing_packages()
    if missing:
        raise Unavailable(
            f"Spark Connect needs further packages ({', '.join(missing)}). Run: pip install 'lithify[connect]'",
            remote=shown(remote),
        )
    check_answers(remote, "Spark Connect")


def missing_packages() -> list[str]:
    """Packages of Spark Connect that are not installed."""
    return [package for module, package in _CONNECT_PACKAGES.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def check_answers(address: str, what: str, wait_s: float = CONNECT_WAIT_S) -> None:
    """That somebody listens at one of the address's hosts."""
    problems = []
    for host, port in endpoints(address):
        try:
            socket.create_connection((host, port), wait_s).close()
        except OSError as error:
            problems.append(f"{host}:{port} {error.strerror or error}")
        else:
            return
    if problems:
        raise Unavailable(
            f"{what} at {shown(address)} does not answer ({'; '.join(problems)}): check the address, and that it runs",
            address=shown(address),
        )
