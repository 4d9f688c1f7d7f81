"""Another writer adds a file whose metadata ends whoever asks Arrow for them: no way to the table ends the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.encrypted import with_encrypted_column
from support.folders import memory_folder

# What is asked, one after the other, each of a lake that was just opened, and what it answers: an error that names the
# file, or something that needs nothing of what is encrypted.
DOORS = {
    "pin": ("lake.cache.pin('a.t')", "encrypted"),
    "sql of another column": ("lake.sql('select id from a.t where id > 4').to_pylist()", "[{'id': 5}, {'id': 6}]"),
    "hot rows": ("[lake.sql(f'select max(id) + {n} as m from a.t').to_pylist() for n in (0, 1)]", "[[{'m': 6}], "),
    "count": ("t.count()", "4"),
    "to_arrow": ("t.to_arrow()", "encrypted"),
    "sql": ("lake.sql('select v from a.t where id = 5')", "encrypted"),
    "query": ("lake.query('select v from a.t').rows", "encrypted"),
    "get": ("t.get(5)", "encrypted"),
    "get of another row": ("t.get(1)", "{'id': 1, 'v': 'a'}"),
    "delete_where": ("t.delete_where(\"v = 'e'\")", "encrypted"),
    "statement": ("lake.execute(\"update a.t set v = 'q' where v = 'e'\")", "encrypted"),
    "compact": ("t.compact()", "[]"),
    "optimize": ("t.optimize(by='id')", "encrypted"),
    "index build": ("t.build_index()", "encrypted"),
    "index check": ("t.check_index().ok", "False"),
    "statistics": ("t.stats().base_files", "2"),
    "backup": ("[create_backup(lake, folder / 'b') and 0, verify_backup(folder / 'b')[1]]", "[0, []]"),
    "update": ("[t.update([{'id': 5, 'v': 'u'}]), t.get(5)]", "{'id': 5, 'v': 'u'}"),
    "feed": ("list(t.feed(0))", "encrypted"),
    "fold": ("[t.upsert([{'id': 5, 'v': 'z'}]), t.fold()]", "encrypted"),
    "merge": ("[t.delete([6]), t.fold()]", "encrypted"),
}
PROGRAM = """
import logging, sys
from pathlib import Path
from lithify import Lake
from lithify.backup.create import create_backup
from lithify.backup.restore import verify_backup
logging.disable(logging.CRITICAL)
folder = Path(sys.argv[1])
for asked in sys.argv[2:]:
    with Lake(folder / "lake") as lake:
        t = lake.table("a.t")
        try:
            print(" ".join(repr(eval(asked)).split()), flush=True)
        except Exception as error:
            print(type(error).__name__, " ".join(str(error).split()), flush=True)
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    with memory_folder() as folder:
        with_encrypted_column(folder)
        yield folder


@pytest.fixture(scope="module")
def answers(made: Path) -> dict[str, str]:
    """Of each door, up to the one that the process died at."""
    asked = [text for text, _ in DOORS.values()]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(made), *asked], capture_output=True, text=True, check=False
    )
    lines = [line for line in ended.stdout.splitlines() if not line.startswith("made ")]
    dead = f"died with {ended.returncode}: {ended.stderr[-500:]}"
    return dict(zip(DOORS, [*lines, *[dead] * (len(DOORS) - len(lines))], strict=True))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("door", DOORS)
def test_a_file_that_another_writer_added_ends_nobody(made: Path, answers: dict[str, str], door: str) -> None:
    told = DOORS[door][1]
    assert told in answers[door]
    if told == "encrypted":
        assert f"{made}/d/x.parquet is encrypted" in answers[door]
