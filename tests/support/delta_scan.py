"""Delta tables as DuckDB's own extension reads them, which shares no code with us: it replays the log and reads the
files itself. The extension comes as a wheel for one version of DuckDB, which may be an older one than the tests use
otherwise: both are installed into a folder of their own in the user's cache, once, and read in a process of their own.
Run as a program, it installs them beforehand, so that no test waits for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from support.fetched import NotHere, once

INSTALL_S_MAX, READ_S_MAX = 300, 120
LOCK = Path(__file__).with_suffix(".lock")

_READ = """
import sys
from pathlib import Path

import duckdb
import duckdb_extension_delta
import pyarrow as pa

[extension] = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
with duckdb.connect() as connection:
    connection.execute(f"LOAD '{extension}'")
    found = connection.execute(sys.argv[1]).to_arrow_table()
with pa.ipc.new_stream(sys.stdout.buffer, found.schema) as stream:
    stream.write_table(found)
"""


def delta_scan(path: Path | str, rest: str = "", columns: str = "*") -> pa.Table:
    """`SELECT columns FROM delta_scan(path) rest`."""
    quoted = str(path).replace("'", "''")
    read = subprocess.run(
        [sys.executable, "-c", _READ, f"SELECT {columns} FROM delta_scan('{quoted}') {rest}"],
        env={**os.environ, "PYTHONPATH": str(installed())},
        capture_output=True,
        timeout=READ_S_MAX,
    )
    if read.returncode:
        raise RuntimeError(f"delta_scan of {path}: {read.stderr.decode(errors='replace').strip()[-2000:]}")
    return pa.ipc.open_stream(read.stdout).read_all()


def installed(again: bool = False) -> Path:
    """The folder that has DuckDB and its extension. `again`: try also where it has just failed."""
    wanted = f"{sys.version_info[:2]} {LOCK.read_text()}"
    return once("delta-scan", wanted, _install, again) / "packages"


def _install(folder: Path) -> None:
    pip: Mapping[str, Any] = {"capture_output": True, "text": True, "timeout": INSTALL_S_MAX}
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    try:
        done = subprocess.run([*command, "--upgrade", "--target", str(folder / "packages"), "-r", str(LOCK)], **pip)
    except subprocess.TimeoutExpired:
        raise NotHere(f"DuckDB's delta extension could not be installed within {INSTALL_S_MAX} seconds") from None
    if done.returncode:
        raise NotHere(f"DuckDB's delta extension could not be installed: {done.stderr.strip()[-1500:]}")


if __name__ == "__main__":
    try:
        installed(again=True)
        print("For the tests: DuckDB with its delta extension")
    except NotHere as error:
        # It reads our tables beside us; nothing of the project needs it.
        print(f"Left out of the tests: {error}", file=sys.stderr)
