"""The examples of the documentation run, and its links lead somewhere. Those that need Spark run in tests/spark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import chart
from tools import api_page

from support.pages import DOCS, examples, run

ROOT = DOCS.parent
START = DOCS / "getting-started.md"
README = ROOT / "README.md"


def test_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    run([block for heading, block in examples(README) if heading == "In Python"], tmp_path, names)
    names["lake"].close()  # type: ignore[attr-defined]

    assert "paid" in capsys.readouterr().out


def test_the_readme_is_short_and_names_the_tests() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert "\nmake test " in text


@pytest.mark.slow
def test_getting_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    said = run([block for heading, block in examples(START) if heading not in ("Over HTTP", "In Spark")], tmp_path, {})

    assert "a test" in said  # the reason of a delete, in the history


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
@pytest.mark.slow
def test_getting_started_over_http(tmp_path: Path) -> None:
    shell, python = (block for heading, block in examples(START) if heading == "Over HTTP")
    command = [sys.executable, "-m", "lithify.cli", "--json", "serve", "--demo", "--no-maintenance", "--port", "0"]
    server = subprocess.Popen([*command, "--lake", str(tmp_path / "lake")], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())

        def here(text: str) -> str:
            return text.replace("http://127.0.0.1:8080", said["url"]).replace("lith_...", said["token"])

        lines = here(shell.text).replace("curl ", "curl --silent --fail-with-body ")
        told = subprocess.run(["bash", "-euo", "pipefail", "-c", lines], capture_output=True, text=True, timeout=60)
        assert told.returncode == 0, told.stdout + told.stderr
        for part in ('"shop.orders"', '"row_count":1', '"upserted":1'):
            assert part in told.stdout
        code = f"{here(python.text)}\nprint(lake.table('shop.customers').get(1)['country'])"
        asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert asked.stdout.strip() == "FR", asked.stderr
    finally:
        server.terminate()
        assert server.wait(60) == 0
        assert server.stdout is not None
        server.stdout.close()


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, wanted = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.name} links to {target}"
        if wanted:
            headings = {anchor(heading) for heading in re.findall(r"^#+ (.*)$", found.read_text(), re.M)}
            assert wanted in headings, f"{page.name} links to {target}"


def test_the_chart_is_drawn_from_the_figures() -> None:
    drawn = chart.drawn(chart.rows((DOCS / "benchmarks.md").read_text()))
    assert chart.PICTURE.read_text() == drawn, "python -m benchmarks.chart draws it again"


HOW_TO = [page for page in sorted((DOCS / "how-to").glob("*.md")) if list(examples(page))]


def needs_spark(page: Path) -> bool:
    return "spark=spark" in page.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in HOW_TO if not needs_spark(p)], ids=lambda page: page.stem)
def test_how_to(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run([block for _, block in examples(page)], tmp_path, {})


def test_the_api_page_is_what_the_code_says() -> None:
    assert api_page.PAGE.read_text() == api_page.page(), "python tools/api_page.py writes it again"


def test_the_page_of_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    said = run([block for _, block in examples(DOCS / "sql.md")], tmp_path, names)
    names["lake"].close()  # type: ignore[attr-defined]

    assert "paid" in said
