"""Whatever is killed, however full the disk is and whatever the clocks say: no row is lost, doubled or made up.

`loop.py` runs as a program of its own, because its children must be forked from a process without threads.
A quarter of a minute of each here, an hour of each in `make soak`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.effort import examples
from support.shifted import shim

pytestmark = pytest.mark.slow

SECONDS = examples(14, 3_600)
PROGRAM = Path(__file__).with_name("loop.py")


def torture(folder: Path, trouble: str, *before: str, environment: Mapping[str, str] | None = None) -> None:
    run = subprocess.run(
        [*before, sys.executable, str(PROGRAM), str(folder / "run"), "--trouble", trouble, "--seconds", str(SECONDS)],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=SECONDS + 600,
    )
    print(run.stdout)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr[-3000:]}"


@pytest.mark.timeout(SECONDS + 700)
def test_processes_that_are_killed_and_stopped(folder: Path) -> None:
    torture(folder, "kills")


@pytest.mark.timeout(SECONDS + 700)
def test_a_disk_that_is_full_now_and_then(folder: Path) -> None:
    namespace = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    if subprocess.run([*namespace, "true"], capture_output=True).returncode:
        pytest.skip("a disk of its own needs a mount namespace, which this machine does not give")
    torture(folder, "full-disk", *namespace)


@pytest.mark.timeout(SECONDS + 700)
def test_clocks_that_disagree(folder: Path) -> None:
    torture(folder, "clocks", environment={"LD_PRELOAD": str(shim(folder))})
