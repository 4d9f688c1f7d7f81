"""The wheel, in environments that hold what an installation would bring and nothing else.

Each environment is a real, empty one: the built wheel is installed into it, and beside it lie the distributions that
its own metadata asks for, and theirs, linked from the environment of the tests. So nothing is fetched, and a package
that an extra forgets to name is as absent as it would be elsewhere. What it does not show: that an index would choose
versions that go together.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Environment:
    folder: Path

    def run(self, command: str, *arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LITHIFY"))}
        return subprocess.run(
            [str(self.folder / "bin" / command), *arguments],
            cwd=self.folder,
            env={**clean, **options},
            capture_output=True,
            text=True,
            timeout=200,
        )

    def python(self, program: str) -> str:
        done = self.run("python", "-c", program)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *arguments: str) -> str:
        """What a command says that ends as other unavailable things do: exit code 1, and no traceback."""
        done = self.run("lithify", *arguments, "--json")
        assert done.returncode == 1, done.stdout + done.stderr
        answer = json.loads(done.stdout or done.stderr)["error"]
        assert answer["code"] == "unavailable", answer
        return str(answer["message"])


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Environment]:
    known: dict[tuple[str, ...], Environment] = {}

    def make(*extras: str, only: tuple[str, ...] = ()) -> Environment:
        """The wheel and what it asks for with these extras; `only`: these distributions and what they need instead."""
        if (*extras, *only) not in known:
            folder = tmp_path_factory.mktemp("-".join((*extras, *only)) or "plain")
            venv.create(folder, with_pip=False, symlinks=True)
            site = next(folder.glob("lib/python*/site-packages"))
            uv = ["uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-index", "--python", str(folder)]
            subprocess.run([sys.executable, "-m", *uv, str(wheel)], check=True, capture_output=True)
            (own,) = importlib.metadata.distributions(path=[str(site)])
            asked = [Requirement(text) for text in only] if only else list(asked_by(own, extras))
            for distribution in all_of(asked, own):
                for name in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "bin")}:
                    if name != "__pycache__":
                        (site / name).symlink_to(Path(str(distribution.locate_file(name))))
            known[(*extras, *only)] = Environment(folder)
        return known[(*extras, *only)]

    return make


def asked_by(distribution: importlib.metadata.Distribution, extras: tuple[str, ...]) -> Iterator[Requirement]:
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ("", *extras)):
            yield requirement


def all_of(asked: list[Requirement], own: importlib.metadata.Distribution) -> Iterator[importlib.metadata.Distribution]:
    """The distributions of these requirements, and of theirs."""
    seen: set[tuple[str, tuple[str, ...]]] = set()
    found: dict[str, importlib.metadata.Distribution] = {}
    while asked:
        requirement = asked.pop()
        name, extras = canonicalize_name(requirement.name), tuple(sorted(requirement.extras))
        if (name, extras) not in seen:
            seen.add((name, extras))
            distribution = own if name == "lithify" else importlib.metadata.distribution(name)
            if name != "lithify":
                found[name] = distribution
            asked += asked_by(distribution, extras)
    yield from found.values()


A_TABLE = """
import pyarrow as pa
from lithify import Lake, Settings

lake = Lake("a-lake", settings=Settings(local_job_bytes_max=0))
table = lake.create_table("shop.orders", pa.schema([("id", pa.int64()), ("v", pa.string())]), key="id")
table.upsert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
table.fold()
table.upsert([{"id": 1, "v": "c"}])
table.delete([2])
print(lake.sql("select * from shop.orders").to_pylist(), table.fold().engine, table.get(1))
"""
REFUSALS = """
import lithify, lithify.spark

def told(what):
    try:
        what()
    except lithify.Unavailable as error:
        return error.message
    raise AssertionError("that is there")

lake = lithify.Lake("b-lake")
import pyarrow as pa
table = lake.create_table("a.b", pa.schema([("id", pa.int64())]), key="id")
open("rows.csv", "w").write("id\\n1\\n")
assert lake.ingest("a.b", "rows.csv").rows == 1
for what in (
    lambda: lithify.LithifyDataSource,
    lambda: lithify.spark.LithifyDataSource,
    lambda: lake.spark,
    table.to_spark,
    lambda: table.feed_to_spark(0),
):
    assert 'pip install "lithify[spark]"' in told(what), told(what)
assert "pip install pandas" in told(table.to_pandas)
assert "pip install polars" in told(table.to_polars)
"""


A_BUCKET = """
import sys
from lithify import Lake, Unavailable
from lithify.files.open_storage import storage_of

assert "obstore" not in sys.modules
try:
    print(type(storage_of("s3://bucket/lake")).__name__)
except Unavailable as error:
    print(error.message)
"""


def test_a_table_and_sql_need_no_extra_even_for_large_folds(environment: Callable[..., Environment]) -> None:
    assert environment().python(A_TABLE) == "[{'id': 1, 'v': 'c'}] local {'id': 1, 'v': 'c'}\n"


def test_what_is_missing_names_what_brings_it_in_python(environment: Callable[..., Environment]) -> None:
    environment().python(REFUSALS)


def test_a_lake_in_a_bucket_needs_no_extra(environment: Callable[..., Environment]) -> None:
    """Where dependencies were chosen by hand, it names the one that is missing."""
    without = ("deltalake", "pyarrow", "datafusion", "numpy", "pydantic-settings", "apscheduler", "xxhash", "orjson")

    assert environment().python(A_BUCKET) == "BucketStorage\n"
    assert "`pip install obstore`" in environment(only=(*without, "prometheus-client")).python(A_BUCKET)


def test_the_command_line_needs_no_extra_and_names_the_one_that_it_lacks(
    environment: Callable[..., Environment],
) -> None:
    plain = environment()
    (plain.folder / "arrived").mkdir()
    (plain.folder / "arrived" / "rows.csv").write_text("id\n1\n")
    (plain.folder / "rows.json").write_text('{"id": 1}\n')
    for arguments in (
        ["init", "lake"],
        ["create", "a.b", "--column", "id:int64", "--key", "id", "--lake", "lake"],
        ["write", "a.b", "rows.json", "--lake", "lake"],
        ["ingest", "a.b", "arrived/rows.csv", "--lake", "lake"],
        ["run", "--once", "--lake", "lake"],
        ["doctor", "--lake", "lake"],
    ):
        done = plain.run("lithify", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    assert '"id": 1' in plain.run("lithify", "sql", "select * from a.b", "--lake", "lake", "--json").stdout
    for arguments in (
        ["demo"],
        ["stream", "arrived", "a.b", "--once", "--lake", "lake"],
    ):
        assert 'pip install "lithify[spark]"' in plain.refused(*arguments)
    assert 'pip install "lithify[server]"' in plain.refused("serve", "--lake", "lake")


def test_a_service_and_a_client_that_has_httpx_and_pyarrow_only(environment: Callable[..., Environment]) -> None:
    server, client = environment("server"), environment(only=("httpx", "pyarrow"))
    lake = server.folder / "lake"
    command = [server.folder / "bin" / "lithify", "--json", "serve", "--demo", "--port", "0", "--lake", lake]
    serving = subprocess.Popen(command, cwd=server.folder, stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        said = json.loads(serving.stdout.readline())
        program = f"""
            import sys, lithify
            lake = lithify.connect({said["url"]!r}, token={said["token"]!r})
            table = lake.table("shop.customers")
            table.upsert([{{"id": 1, "name": "Ada", "country": "FR"}}], missing="null")
            table.delete([2])
            table.stats(), table.history(), table.partitions(), table.changes(), table.head(), table.count()
            table.fold(dry_run=True), table.fold(), table.compact(), table.vacuum(dry_run=True), lake.cache.stats()
            lake.explain("select * from shop.orders"), lake.stats(), table.tags(), lake.queries(), lake.jobs()
            print(table.get(1)["name"], table.get(2), lake.sql("select 1 as one").to_pylist(), lake.tables())
            assert not {{"numpy", "deltalake", "datafusion", "pydantic", "orjson"}} & set(sys.modules)
            try:
                lithify.Lake
            except lithify.Unavailable as error:
                print(error.message)
        """
        shown = client.python("\n".join(line[12:] for line in program.splitlines()))
        assert "Ada None [{'one': 1}]" in shown
        assert "`pip install lithify`" in shown
        asked = environment().run(
            "lithify", "--server", said["url"], "sql", "select count(*) from shop.orders", LITHIFY_TOKEN=said["token"]
        )
        assert "20000" in asked.stdout.replace(",", ""), asked.stderr
    finally:
        serving.terminate()
        assert serving.wait(100) == 0
        assert serving.stdout is not None
        serving.stdout.close()


def test_the_wheel_holds_what_users_use(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {
        "lithify",
        "pyspark_lithify",
        next(name for name in names if ".dist-info" in name).partition("/")[0],
    }
    assert "lithify/py.typed" in names
    assert not [name for name in names if "/faults" in name or "test" in name]
