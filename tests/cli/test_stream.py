"""stream: files of a folder into a table. What it takes from Spark is told in tests/spark/test_file_stream.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"id": 4}\n')
    return tmp_path / "landing"


def label(checkpoint: Path, **facts: Any) -> None:
    """A checkpoint as an earlier stream left it."""
    checkpoint.mkdir()
    known = {"table": "shop.orders", "incarnation": "x", "source": "/in", "mode": "upsert", "op_column": None}
    (checkpoint / "lithify.json").write_text(json.dumps(known | facts))


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("nowhere", ["--once"], "nowhere is no folder"),
        ("landing/a.json", ["--once"], "is one file: give its folder"),
        ("landing/**/*.json", ["--once"], "give the folder instead of **"),
        ("landing/*.csv", ["--once"], "holds no files yet that would tell their format: pass format"),
        ("landing", ["--once", "--every", "5s"], "leave out --every"),
        ("landing", ["--every", "soon"], "--every 'soon' is no time from 10ms to 24h"),
        ("landing", ["--once", "--mode", "append", "--op-column", "op"], "mode append only adds"),
    ],
)
def test_what_cannot_be_is_refused_before_spark_is_started(
    orders: Run, landing: Path, source: str, options: list[str], said: str
) -> None:
    answer = orders("stream", source, "shop.orders", *options, "--json")
    assert answer.refused
    assert said in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"table": "shop.lines"}, "belongs to a stream into table shop.lines: go on with that, or choose another"),
        ({}, "into a table shop.orders that was dropped since"),
    ],
)
def test_a_checkpoint_belongs_to_one_table(orders: Run, landing: Path, facts: dict[str, str], said: str) -> None:
    label(landing.parent / "checkpoint", **facts)
    answer = orders("stream", str(landing), "shop.orders", "--once", "--checkpoint", "checkpoint", "--json")
    assert answer.code == 1
    assert said in answer.json["error"]["message"]


def test_a_checkpoint_of_another_query_is_left_alone(orders: Run, landing: Path) -> None:
    (landing.parent / "checkpoint").mkdir()
    (landing.parent / "checkpoint" / "metadata").write_text("{}")
    answer = orders("stream", str(landing), "shop.orders", "--once", "--checkpoint", "checkpoint", "--json")
    assert "is the checkpoint of another streaming query" in answer.json["error"]["message"]


def test_bad_records_have_one_option_and_its_old_name_still_works(run: Run) -> None:
    shown = run("stream", "--help").out
    assert "--on-bad-record" in shown
    assert "--null-keys" not in shown
    answer = run("stream", "nowhere", "shop.orders", "--null-keys", "sometimes", "--json")
    assert "--null-keys" in answer.json["error"]["message"]
