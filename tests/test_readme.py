"""What the README shows works as printed."""

from __future__ import annotations

import json
import os
import re
import shutil
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


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
@pytest.mark.slow
def test_the_curl_lines_and_the_client(tmp_path: Path) -> None:
    section = README.split("## Over HTTP\n", 1)[1].split("\n## ", 1)[0]
    shell, python = (re.search(rf"```{kind}\n(.*?)```", section, re.S) for kind in ("bash", "python"))
    assert shell is not None
    assert python is not None
    command = [sys.executable, "-m", "lithify.cli", "--json", "serve", "--demo", "--no-upkeep", "--port", "0"]
    server = subprocess.Popen([*command, "--lake", str(tmp_path / "lake")], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())

        def here(text: str) -> str:
            return text.replace("http://127.0.0.1:8080", said["url"]).replace("lith_...", said["token"])

        lines = here(shell[1]).replace("curl ", "curl --silent --fail-with-body ")
        told = subprocess.run(["bash", "-euo", "pipefail", "-c", lines], capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stdout + told.stderr
        assert '"shop.orders"' in told.stdout
        assert '"row_count":1' in told.stdout
        assert '"upserted":1' in told.stdout
        code = f"import lithify\n{here(python[1])}\nprint(lake.table('shop.customers').get(1)['country'])"
        asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert asked.stdout.strip() == "FR", asked.stderr
    finally:
        server.terminate()
        assert server.wait(60) == 0
        assert server.stdout is not None
        server.stdout.close()
