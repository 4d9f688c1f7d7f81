"""Imports go down only. Each foreign engine has one home, and one module writes to a Delta log."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "lithify"
# From the bottom up. A module may import from its own room and from lower rows.
ROOMS = [
    {"errors"},
    {"settings_files"},
    {"options", "metrics"},
    {"settings"},
    {"core"},
    {"text", "merge"},
    {"files"},
    {"compute"},
    {"delta"},
    {"index", "spark"},
    {"cache"},
    {"sql"},
    {"tables"},
    {"jobs", "read"},
    {"write"},
    {"dml", "maintenance"},
    {"streams"},
    {"pipelines", "erasure"},
    {"lake", "client"},
    {"backup"},
    {"tools"},
    {"http"},
    {"flight"},
    {"cli"},
]
HEIGHT = {room: height for height, rooms in enumerate(ROOMS) for room in rooms}
HEIGHT[""] = HEIGHT["lake"]  # `from lithify import ...` brings in all of it
HOMES = {
    "deltalake": {"delta"},
    "pyspark": {"spark"},
    "datafusion": {"sql"},
    "sqlglot": {"sql"},
    "obstore": {"files"},
    "typer": {"cli"},
    "rich": {"cli"},
    "fastapi": {"http"},
    "starlette": {"http"},
    "uvicorn": {"http"},
    "httpx": {"client"},
    "google": {"flight"},
    "cryptography": {"erasure"},
}
# Pure values and decisions: whole rooms, and modules of others.
PURE_ROOMS = {"core", "merge", "options", "text"}
PURE_MODULES = {
    "backup/manifest.py",
    "cache/extents.py",
    "cache/hot_rows.py",
    "delta/batch_txns.py",
    "delta/foreign_bounds.py",
    "delta/forget_rules.py",
    "dml/assign.py",
    "dml/texts.py",
    "erasure/bounds.py",
    "erasure/needles.py",
    "files/zorder_values.py",
    "flight/messages.py",
    "flight/metadata.py",
    "flight/parameter_types.py",
    "index/key_ranges.py",
    "index/prune.py",
    "index/sort_keys.py",
    "index/stats.py",
    "maintenance/backoff.py",
    "maintenance/compact_plan.py",
    "maintenance/disk_use.py",
    "maintenance/fold_plan.py",
    "maintenance/optimize_plan.py",
    "maintenance/plans.py",
    "maintenance/read_cost.py",
    "maintenance/reports.py",
    "maintenance/retention_limits.py",
    "maintenance/triggers.py",
    "maintenance/vacuum_rules.py",
    "pipelines/declaration.py",
    "pipelines/reports.py",
    "pipelines/schedule.py",
    "pipelines/status.py",
    "pipelines/stream_declaration.py",
    "pipelines/due.py",
    "sql/parameters.py",
    "sql/statements/first_word.py",
    "sql/statements/grammar.py",
    "sql/statements/model.py",
}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def for_types(tree: ast.AST) -> set[int]:
    """What stands under TYPE_CHECKING, by the ids of its nodes."""
    return {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for child in ast.walk(statement)
    }


def imports_of(path: Path, *, types_too: bool = False) -> Iterator[tuple[str, int]]:
    """Modules imported at run time, wherever in the file, with their line. `types_too`: and those for mypy alone."""
    tree = ast.parse(path.read_text())
    spared = set() if types_too else for_types(tree)
    for node in ast.walk(tree):
        if id(node) in spared:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield node.module or "", node.lineno


def test_every_room_has_its_place() -> None:
    assert {room_of(path) for path in MODULES} - {"__init__", "py"} <= set(HEIGHT)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down(path: Path) -> None:
    """Those for types as well: a room that is handed something from above says in a protocol of its own what it needs
    of it.
    """
    room = room_of(path)
    if room == "__init__":
        return
    for module, line in imports_of(path, types_too=True):
        top, _, rest = module.partition(".")
        if top == "lithify":
            other = rest.partition(".")[0]
            allowed = other == room or HEIGHT[other] < HEIGHT[room]
            assert allowed, f"{path}:{line}: {room} must not import {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_foreign_engines_have_one_home(path: Path) -> None:
    """At run time: what a function takes may be called by its type anywhere."""
    for module, line in imports_of(path):
        homes = HOMES.get(module.partition(".")[0])
        assert homes is None or room_of(path) in homes | {"__init__"}, f"{path}:{line}: {module} is for {homes} only"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_delta_knows_the_log_folder(path: Path) -> None:
    """Whoever does not name it does not write to it. Catalog spares it when it deletes the files of a dropped table."""
    names = {
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    docstrings = {name for name in names if "\n" in name}
    if any("_delta_log" in name or "_log_archive" in name for name in names - docstrings):
        assert room_of(path) == "delta" or path.relative_to(SOURCE) == Path("lake/catalog.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_there_is_one_way_to_commit(path: Path) -> None:
    """Whoever neither swaps nor holds an intent cannot decide by itself that a commit does not stand (invariant 2)."""
    if path.relative_to(SOURCE).as_posix() in {
        f"delta/{name}.py" for name in ("commit", "commit_outcome", "create_log", "log")
    }:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        named = {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
        swaps = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "try_commit"
        assert {swaps, "Intent" in named} == {False}, f"{path}: use delta.commit.commit"


# What opens a Parquet file, and the only modules that may say so: they read INT96 as microseconds and name the file.
PARQUET_DOORS = {
    "ParquetFile": {"files/open_parquet.py"},
    "ParquetDataset": set(),
    "read_table": set(),
    "read_metadata": {"files/open_parquet.py"},
    # What Arrow says of a column in a row group may end the process, unless `files/examine.py` has found the file
    # harmless. How many rows it has may be asked for.
    "row_group": {
        "cache/load.py",
        "erasure/file_without.py",
        "erasure/pages.py",
        "files/footer_cache.py",
        "files/footer_parts.py",
        "files/open_parquet.py",
        "files/parquet.py",
        "files/statistics.py",
        "index/footers.py",
        "spark/datasource/read.py",
    },
    "read_schema": set(),
    "dataset": {"files/open_parquet.py"},
    "register_parquet": set(),
    "register_listing_table": set(),
    "read_parquet": {"sql/scan_files.py", "sql/lookup.py"},
    "SessionConfig": {"sql/scan_files.py"},
}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_parquet_files_are_opened_through_one_door(path: Path) -> None:
    name = path.relative_to(SOURCE).as_posix()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            allowed = PARQUET_DOORS.get(called)
            assert allowed is None or name in allowed, f"{path}:{node.lineno}: use files.open_parquet, not {called}"


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if room_of(p) in PURE_ROOMS or p.relative_to(SOURCE).as_posix() in PURE_MODULES],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_pure_modules_do_nothing(path: Path) -> None:
    """Pure values and decisions: no files, no clock, no randomness, no processes."""
    forbidden = {
        "os",
        "io",
        "pathlib",
        "shutil",
        "time",
        "random",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "uuid",
    }
    assert not forbidden & {module.partition(".")[0] for module, _ in imports_of(path)}
    assert "pyarrow.parquet" not in {module for module, _ in imports_of(path)}


def test_pure_modules_are_there() -> None:
    assert all((SOURCE / module).exists() for module in PURE_MODULES)


def test_nothing_reads_the_environment_but_settings_java_and_keys_of_buckets() -> None:
    allowed = {"settings", "settings_files", "spark", "cli"}
    for path in MODULES:
        text = path.read_text()
        if path != SOURCE / "files/bucket/client.py" and ("os.environ" in text or "getenv" in text):
            assert room_of(path) in allowed, f"{path} reads the environment: pass a value instead"


# Who touches files without the storage: none of them are a lake's. A whole room, or a module.
OUTSIDE_A_LAKE = {
    "settings.py": "the user's own folders",
    "settings_files.py": "settings of the user, and those that a lake suggests, read before there is a lake",
    "cli": "files that the user names on the command line, and the terminal",
    "tools": "measures the disk below the storage, and makes the folder of the demo",
    "client/lake.py": "a client has no lake: certificates of the user",
    "client/transport.py": "a client has no lake: certificates of the user",
    "erasure/scan.py": "looks at all that lies there, whatever the storage would follow or believe",
    "erasure/scan_main.py": "the process that a scan runs in",
    "http/server.py": "certificates of the service",
    "cache/shared_memory.py": "memory that processes share by a descriptor",
    "compute/processes.py": "/proc",
    "compute/worker_process.py": "pipes to a worker process",
    "files/examine.py": "a child's input and its last words",
    "index/examine_main.py": "the place where a child is, in memory that outlives it",
    "sql/isolated": "processes of their own: their cage, pipes and scratch folders",
    "spark/class_archive.py": "the JVM's archive in the user's cache folder",
    "spark/executors.py": "the package's own source, packed for the executors",
    "spark/java.py": "where Java is",
    "spark/s3a.py": "which jars Spark has",
    "spark/session.py": "what a JVM is configured with",
    "spark/target.py": "how much memory the machine has",
    "spark/tasks.py": "which tasks have ended, in the scratch folder of a worker process",
    "spark/worker.py": "the scratch folder of a worker process",
}
FILE_MODULES = {"fcntl", "glob", "mmap", "shutil", "tempfile"}
# What `os` has besides files; of `os.path`, what only looks at the text.
NO_FILES = {"cpu_count", "environ", "getpid", "register_at_fork", "getppid", "path"}
ONLY_TEXT = {"basename", "dirname", "join", "normpath", "splitext"}
ARROW_FILES = {"OSFile", "create_memory_map", "input_stream", "memory_map", "output_stream"}
PARQUET_FILES = {"ParquetWriter", "write_to_dataset"}


def file_accesses(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What reaches files, with its line. Paths are `PurePath`: nothing can be done with one but to name a file, and
    mypy sees to it.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                (f"import {alias.name}", node.lineno)
                for alias in node.names
                if alias.name in FILE_MODULES | {"pathlib", "pyarrow.fs"}
            )
        elif isinstance(node, ast.ImportFrom):
            wrong = {"os", "os.path", "io", "pyarrow.fs"} | FILE_MODULES
            yield from (
                (f"from {node.module} import {alias.name}", node.lineno)
                for alias in node.names
                if node.module in wrong or (node.module == "pathlib" and alias.name == "Path")
            )
        elif isinstance(node, ast.Attribute):
            said = ast.unparse(node)
            module, _, name = said.rpartition(".")
            if (
                (module == "os" and name not in NO_FILES)
                or (module == "os.path" and name not in ONLY_TEXT)
                or (module in ("pa", "pyarrow") and name in ARROW_FILES)
                or (module == "pq" and name in PARQUET_FILES)
                or said == "io.open"
            ):
                yield said, node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield "open()", node.lineno


def lies_in(path: Path, name: str) -> bool:
    return path == SOURCE / name or SOURCE / name in path.parents


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if not any(lies_in(p, name) for name in ("files", *OUTSIDE_A_LAKE))],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_files_of_a_lake_are_reached_through_the_storage(path: Path) -> None:
    """So another storage is possible, and a test can make any access fail."""
    tree = ast.parse(path.read_text())
    under = for_types(tree)
    imports = [node for node in ast.walk(tree) if id(node) in under and isinstance(node, ast.ImportFrom)]
    spared = {node.lineno for node in imports}
    found = [f"{path}:{line}: {said}" for said, line in file_accesses(tree) if line not in spared]
    assert not found, "use files/storage.py: " + ", ".join(found)


def test_who_reaches_files_otherwise_is_there_and_needs_it() -> None:
    for name in OUTSIDE_A_LAKE:
        modules = [path for path in MODULES if lies_in(path, name)]
        assert any(list(file_accesses(ast.parse(path.read_text()))) for path in modules), name


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos.rename(a, b)",
        "import os\nos.path.exists(a)",
        "from os import unlink",
        "import shutil",
        "import tempfile",
        "from pathlib import Path",
        "import pathlib",
        "open(a)",
        "import pyarrow as pa\npa.memory_map(a)",
        "import pyarrow.parquet as pq\npq.ParquetWriter(a, b)",
    ],
)
def test_what_reaches_files_is_seen(code: str) -> None:
    assert list(file_accesses(ast.parse(code)))


# What libraries keep behind an underscore and mean to be used, or have no other way to, and the one way into what users
# hold.
MEANT = {"os._exit", "here._replace", "UNKNOWN._replace", "SparkContext._active_spark_context"}
MEANT |= {"SparkContext._gateway", "SparkContext._jvm", "SparkContext._gateway._gateway_client", "owner._internals"}


def private_members(tree: ast.AST) -> set[str]:
    """Those that the classes of a module have: methods, fields, and what methods keep in themselves."""
    members: set[str] = set()
    for kind in ast.walk(tree):
        if not isinstance(kind, ast.ClassDef):
            continue
        for statement in kind.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                members.add(statement.name)
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                members |= {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        members |= {
            node.attr
            for node in ast.walk(kind)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("self", "cls", kind.name)
        }
    return members


def reaches(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Private members of others that are looked at or set."""
    own = private_members(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            holder, text = ast.unparse(node.value), ast.unparse(node)
            of_users = holder.endswith(("lake", "table", "target", "source"))
            if holder not in ("self", "cls") and (node.attr not in own or of_users):
                yield text, node.lineno


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_reach_into_private_members_of_other_modules(path: Path) -> None:
    """`lake/internals.py` tells what a lake and a table are made of; whoever needs more takes it as an argument."""
    tree = ast.parse(path.read_text())
    for text, line in reaches(tree):
        assert text in MEANT, f"{path}:{line}: {text}"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lithify"):
            for alias in node.names:
                assert not alias.name.startswith("_") or alias.name == "__version__", f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("Other._kept = None", ["Other._kept"]),
        ("_kept = 1\nother._kept", ["other._kept"]),
        ("def _kept(): ...\nother._kept()", ["other._kept"]),
        ("class A:\n    _kept = 1\n    def f(self, other): return other._kept", []),
        ("class A:\n    def f(self, other):\n        self._kept = other._kept", []),
        ("class A:\n    def f(self, other):\n        other._kept = self._kept", ["other._kept"]),
        ("class A:\n    _kept: int\n    def f(self, lake): return lake._kept", ["lake._kept"]),
    ],
)
def test_reaches_into_others_are_seen(code: str, found: list[str]) -> None:
    assert [text for text, _ in reaches(ast.parse(code))] == found


def test_what_is_meant_to_be_used_is_used() -> None:
    used = {text for path in MODULES for text, _ in reaches(ast.parse(path.read_text()))}
    assert used == MEANT
