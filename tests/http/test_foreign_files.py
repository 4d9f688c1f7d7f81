"""A file that another writer adds to an adopted table does not end the service that reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from support.encrypted import with_encrypted_column
from support.waiting import WAIT_S_MAX, eventually

COMMAND = [sys.executable, "-m", "lithify.cli", "serve", "--json", "--no-maintenance", "--port", "0", "--lake"]


@pytest.mark.slow
def test_hot_rows_of_an_encrypted_file_are_not_loaded_and_the_service_goes_on(tmp_path: Path) -> None:
    lake = with_encrypted_column(tmp_path)
    log = tmp_path / "log"
    with open(log, "wb") as errors:
        process = subprocess.Popen([*COMMAND, str(lake)], stdout=subprocess.PIPE, stderr=errors, env={**os.environ})
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        headers = {"Authorization": f"Bearer {said['token']}"}
        with httpx.Client(base_url=said["url"], headers=headers, timeout=WAIT_S_MAX) as client:

            def ask(sql: str) -> httpx.Response:
                return client.post("/v1/query/sql", json={"sql": sql})

            # Queries that have read most of the table twice have it loaded behind them.
            assert ask("select id from a.t where id > 0 and id < 3").status_code == 200
            assert ask("select max(id) + 0 as m from a.t").json()["rows"] == [[6]]
            assert ask("select max(id) + 1 as m from a.t").json()["rows"] == [[7]]
            eventually(lambda: b"stays out of the cache" in log.read_bytes() or process.poll() is not None, "the load")

            refused = ask("select v from a.t")
            assert (refused.status_code, "is encrypted" in refused.text) == (400, True)
            pinned = client.post("/v1/query/cache/pin", json={"table": "a.t"})
            assert (pinned.status_code, "is encrypted" in pinned.text) == (400, True)
            assert ask("select max(id) + 2 as m from a.t").json()["rows"] == [[8]]
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
