"""What the README shows works as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def block(heading: str) -> str:
    section = README.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found = re.search(r"```\w*\n(.*?)```", section, re.S)
    assert found is not None
    return found.group(1)


@pytest.mark.spark
def test_the_python_example(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block("In Python")], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )

    assert done.returncode == 0, done.stderr
    assert "paid" in done.stdout
    assert (tmp_path / "my-lake" / "shop" / "orders" / "base" / "_delta_log").is_dir()


@pytest.mark.spark
def test_the_command_lines(tmp_path: Path) -> None:
    (tmp_path / "exports").mkdir()
    (tmp_path / "exports" / "a.csv").write_text("id,status,amount\n7,new,1.50\nx,new,2.50\n")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block("On the command line")],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "erasure request 17" in done.stdout


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
