"""Processes whose clock is wrong, whatever library asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.preloaded import compiled

DAY_S = 86_400


def shim(folder: Path) -> Path:
    """A library to be loaded before all others."""
    return compiled(Path(__file__).with_name("shifted.c"), folder)


def run_at(library: Path, ahead_days: float, program: str, *arguments: object) -> Any:
    """Run a Python program in a process whose clock is so many days ahead; what it prints is JSON."""
    shifted = {"LD_PRELOAD": str(library), "LITHIFY_CLOCK_AHEAD_S": str(int(ahead_days * DAY_S))}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**os.environ, **shifted},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None
