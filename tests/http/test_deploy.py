"""What is in deploy/: every expression of the alarms and of the board is about series that the service has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = DEPLOY / "prometheus-rules.yml"
BOARD = DEPLOY / "grafana" / "lithify.json"
_SERIES = re.compile(r"\b(?:lithify|process)_[a-z_]+")
_LABELS = re.compile(r"((?:lithify|process)_[a-z_]+)\{([^}]*)\}")
OF_PROMETHEUS = {"instance", "job"}


def expressions() -> Iterator[str]:
    text = RULES.read_text()
    yield from re.findall(r"expr: (?!>-)(.+)", text)
    yield from (" ".join(folded.split()) for folded in re.findall(r"expr: >-\n((?: {10}.+\n)+)", text))
    for panel in json.loads(BOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


EXPRESSIONS = list(expressions())


@pytest.fixture
def series(client: TestClient) -> dict[str, set[str]]:
    """Of a service that has done something of each kind: names of series, with their labels."""
    client.post("/v1/query/sql", json={"sql": "select count(*) from shop.orders"})
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        for suffix in suffixes:
            found.setdefault(family.name.removesuffix("_total") + suffix, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_there_are_as_many_as_there_are_alarms_and_lines() -> None:
    alarms = RULES.read_text().count("- alert:")
    lines = sum(len(panel["targets"]) for panel in json.loads(BOARD.read_text())["panels"])
    assert len(EXPRESSIONS) == alarms + lines


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_series_is_there(series: dict[str, set[str]], expression: str) -> None:
    named = set(_SERIES.findall(expression))
    assert named or expression.startswith("up{")
    assert named <= set(series)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_label_is_one_of_its_series(series: dict[str, set[str]], expression: str) -> None:
    for name, conditions in _LABELS.findall(expression):
        used = set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", conditions)) - OF_PROMETHEUS
        assert not series[name] or used <= series[name], name


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Debian's prometheus")
def test_prometheus_takes_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_and_the_image_start_what_there_is() -> None:
    for name in ("lithify.service", "start.sh"):
        text = (DEPLOY / name).read_text()
        assert "lithify serve --token-file" in text
        assert "lithify init" in text
    assert "/health/ready" in (ROOT / "Dockerfile").read_text()
