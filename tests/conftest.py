"""Fixtures shared by all tests. Whatever uses `spark` is marked `spark`, whatever uses `s3` is marked `bucket`. What
else they share lies in tests/support, which child processes import by name too.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from lithify.files.local_files import keep_copies_in
from support.checkpoints import at_once
from support.effort import SEED
from support.fault_proxy import FaultProxy
from support.folders import memory_folder
from support.left_out import left_out
from support.s3_servers import NoServer, S3Server, Servers, must_be_there

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long an example takes is the machine's business: a busy one must not fail a property that holds.
settings.register_profile("lithify", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lithify")

# Every JVM of the tests, also in children: none lives long enough for the optimising compiler to pay for itself.
# It comes with a small code cache, which hundreds of queries fill.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m")


@pytest.fixture(autouse=True, scope="session")
def _no_settings_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither read nor written, by the tests and their children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _checkpoints_at_once() -> Iterator[None]:
    """So that a test knows what lies in a log. Children write them as users do."""
    with at_once():
        yield


def pytest_report_header() -> str:
    return f"which part of the sweeps: SWEEP_SEED={SEED}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where nothing may be left out, what is wanting on this machine is seen."""
    if must_be_there() and (lines := left_out(terminalreporter.stats.get("skipped", ()))):
        terminalreporter.section("LEFT OUT, THOUGH CI IS SET", sep="=", red=True, bold=True)
        for line in lines:
            terminalreporter.write_line(line, yellow=True)


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end: no collection of garbage need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory where possible."""
    with memory_folder() as path:
        yield path


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Imported here: the tests without a JVM should not pay for PySpark.
    from lithify.spark.session import SparkOptions, local_session

    session = local_session(SparkOptions(master="local[2]", driver_memory="2g", shuffle_partitions=2))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(lambda name: tmp_path_factory.mktemp(name) / "server")
    yield servers
    servers.close()


@pytest.fixture
def serve(
    request: pytest.FixtureRequest,
    _servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], S3Server]:
    """Start the server of a name, or "any", and have the environment lead to it."""
    assert request.node.get_closest_marker("bucket"), "what needs a server is marked: @pytest.mark.bucket"

    def start(name: str) -> S3Server:
        try:
            server = _servers.any().server if name == "any" else _servers.get(name).server
        except NoServer as error:
            if must_be_there() and not error.tolerable:
                pytest.fail(str(error), pytrace=False)
            pytest.skip(str(error))
        for variable in [variable for variable in os.environ if variable.startswith("AWS_")]:
            monkeypatch.delenv(variable)
        for variable, value in server.environment().items():
            monkeypatch.setenv(variable, value)
        copies = tmp_path_factory.mktemp("copies")
        monkeypatch.setenv("LITHIFY_CACHE_FOLDER", str(copies))
        keep_copies_in(copies)
        return server

    return start


@pytest.fixture
def s3(request: pytest.FixtureRequest, serve: Callable[[str], S3Server]) -> S3Server:
    """A real S3 server, which the environment leads to. Its bucket is shared: `address` is a place of the test's own.
    Indirectly parametrised, the server of that name.
    """
    return serve(getattr(request, "param", "any"))


@pytest.fixture
def address(s3: S3Server) -> str:
    """Where a lake may be made that no other test knows."""
    return s3.address()


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy before the server, which the environment leads to instead: it counts requests, and breaks them."""
    with FaultProxy(s3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.server.url)
        yield proxy
