"""The server of a bucket is killed while lakes write and fold there, and comes back. What was acknowledged is there
once, what was refused is not there, and what nobody could know is there once or not at all.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import CommitUnknown, Lake, LithifyError, Table
from support.effort import SOAK
from support.s3_servers import NoServer, must_be_there, versitygw

pytestmark = [pytest.mark.bucket, pytest.mark.slow]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("writer", pa.int64())])
WRITERS = 3
KILLS = 40 if SOAK else 4
UP_S, DOWN_S = 1.0, 0.3


class Writer(threading.Thread):
    """Goes on with the next row after each answer, whatever it is."""

    def __init__(self, address: str, number: int, stop: threading.Event) -> None:
        super().__init__(name=f"writer {number}")
        self._address, self._number, self._stop_writing = address, number, stop
        self.acknowledged: set[int] = set()
        self.unknown: set[int] = set()
        self.refused: set[int] = set()
        self.wrong: list[BaseException] = []

    def run(self) -> None:
        row = self._number * 1_000_000
        while not self._stop_writing.is_set():
            try:
                with Lake(self._address, create=False) as lake:
                    table = lake.table("a.t")
                    while not self._stop_writing.is_set():
                        row += 1
                        self._write(table, row)
            except LithifyError:
                time.sleep(0.05)  # no server to open the lake at
            except BaseException as error:
                self.wrong.append(error)
                return

    def _write(self, table: Table, row: int) -> None:
        try:
            table.upsert([{"id": row, "writer": self._number}])
        except CommitUnknown:
            self.unknown.add(row)
        except LithifyError:
            self.refused.add(row)
        else:
            self.acknowledged.add(row)
        if row % 7 == 0:
            with contextlib.suppress(LithifyError):
                table.fold()


@pytest.mark.timeout(3600 if SOAK else 300)
def test_nothing_acknowledged_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        serving = versitygw(tmp_path / "server")
        running = serving.__enter__()
    except NoServer as error:
        if must_be_there() and not error.tolerable:
            raise
        pytest.skip(str(error))
    try:
        for name, value in running.server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("LITHIFY_CACHE_FOLDER", str(tmp_path / "copies"))
        address, stop = running.server.address(), threading.Event()
        with Lake(address) as lake:
            lake.create_table("a.t", SCHEMA, key="id")
        writers = [Writer(address, number, stop) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            time.sleep(UP_S)
            running.kill()
            time.sleep(DOWN_S)
            running.start()
        time.sleep(UP_S)
        stop.set()
        for writer in writers:
            writer.join(120)
            assert not writer.is_alive()
            assert not writer.wrong, writer.wrong
        acknowledged = set().union(*(writer.acknowledged for writer in writers))
        refused = set().union(*(writer.refused for writer in writers))
        with Lake(address) as lake:
            table = lake.table("a.t")
            found = table.to_arrow(["id"]).column("id").to_pylist()
            table.fold()
            folded = table.to_arrow(["id"]).column("id").to_pylist()
    finally:
        serving.__exit__(None, None, None)

    assert len(acknowledged) > KILLS
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    assert sorted(folded) == sorted(found)
    assert not refused & set(found)
