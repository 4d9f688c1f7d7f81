"""A virtual environment for each set of things that peers need, made when it is first used and kept in build/peers."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

INSTALL_S_MAX = 900
OURS = ("lithify",)  # this environment, this source


class NotToBeHad(Exception):
    """Why something could not be installed here."""


def python_of(needs: Sequence[str], folder: Path) -> Path:
    """An interpreter that has them."""
    if tuple(needs) == OURS:
        return Path(sys.executable)
    environment = folder / hashlib.sha256("\n".join(needs).encode()).hexdigest()[:12]
    python, done = environment / "bin" / "python", environment / "done"
    if not done.exists():
        _run([sys.executable, "-m", "venv", "--clear", str(environment)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs])
        done.touch()
    return python


def _run(command: list[str]) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX)
    except subprocess.TimeoutExpired:
        raise NotToBeHad(f"no answer within {INSTALL_S_MAX} seconds") from None
    if ran.returncode:
        said = [line for line in ran.stderr.splitlines() if line.strip()]
        raise NotToBeHad(said[-1] if said else f"{command[0]} ended with {ran.returncode}")
