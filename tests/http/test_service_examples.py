"""The curl examples of docs/service.md about tables, rows and queries work as printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


def examples(*headings: str) -> str:
    text = PAGE.read_text()
    sections = [text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0] for heading in headings]
    return "\n".join(re.findall(r"```bash\n(.*?)```", "\n".join(sections), re.S))


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_tables_rows_and_queries(served: Any) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", examples("Tables and rows", "Queries")],
        env={**os.environ, "LITHIFY_SERVER": served.url, "LITHIFY_TOKEN": served.token},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert '"row":{"id":1,"amount":"9.90","status":"paid"}' in said
    assert '"refused":[{"index":1' in said
    assert "id,amount,status\n1,9.90,paid\n2,5.00,\n4,2.00,\n" in said
    assert '"next":"/v1/query/results/report-7?page=2"' in said
    assert '"next":"/v1/query/results/report-7?page=3"' in said


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_background_work_and_cache(served: Any) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", examples("Maintenance and cache")],
        env={**os.environ, "LITHIFY_SERVER": served.url, "LITHIFY_TOKEN": served.token},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    for part in ('"final_rows":3', '"retain_hours":24.0', '"cycle":', '"candidates":', '"pinned":true'):
        assert part in done.stdout
