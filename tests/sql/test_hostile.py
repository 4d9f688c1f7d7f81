"""SQL that means no good reads nothing, changes nothing and ends in time, and the process goes on."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.folders import memory_folder
from support.hostile import REFUSED, SECRET, STOPPED

MEMORY_BYTES_MAX = 6 * 2**30
ENDS_S_MAX = 250
STOPPED_BY = {"limit_exceeded", "invalid_request", "compute_failed"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report() -> Iterator[dict[str, Any]]:
    """All of it, asked in one process whose memory is limited."""
    with memory_folder() as folder:
        ran = subprocess.run(
            [sys.executable, "-m", "support.hostile", str(folder)],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            timeout=ENDS_S_MAX,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX)),
        )
        assert ran.returncode == 0, ran.stderr[-2_000:]
        yield json.loads(ran.stdout)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(report: dict[str, Any], name: str) -> None:
    assert report["outcomes"][name].get("error") in {"invalid_request", "not_found"}, report["outcomes"][name]


@pytest.mark.parametrize("name", STOPPED)
def test_stopped(report: dict[str, Any], name: str) -> None:
    assert report["outcomes"][name].get("error") in STOPPED_BY, report["outcomes"][name]


def test_nothing_was_read(report: dict[str, Any]) -> None:
    assert SECRET not in json.dumps(report)


def test_nothing_was_changed_or_written(report: dict[str, Any]) -> None:
    assert report["rows"] == 20_000
    assert report["files"] == ["lake", "secret"]
