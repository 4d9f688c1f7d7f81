"""quarantine list, show, retry, purge."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
RECORDS = [{"id": 1, "amount": "1.00", "status": "a"}, {"id": 2, "amount": "x", "status": "b"}, {"id": 3}]


@pytest.fixture
def name(orders: Run, folder: Path) -> str:
    """Of two records of shop.orders that were set aside."""
    (folder / "in.json").write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    loading = ("ingest", "shop.orders", str(folder / "in.json"), "--on-bad-record", "quarantine")
    answer = orders(*loading, "--missing", "refuse")
    assert answer.code == 0, answer.err
    (found,) = orders("quarantine", "list", "shop.orders", "--json").json["quarantine"]
    assert found["records"] == 2
    return str(found["name"])


def test_what_was_set_aside_is_shown(orders: Run, name: str) -> None:
    assert name[:8] in orders("quarantine", "list", "shop.orders").out
    shown = orders("quarantine", "show", "shop.orders", name, "--limit", "1", "--json").json
    assert (shown["more"], [json.loads(each["record"])["id"] for each in shown["records"]]) == (True, [2])
    text = orders("quarantine", "show", "shop.orders", name, "--limit", "1").out
    assert "in.json" in text
    assert "--after 1" in text


def test_what_fits_by_now_is_written(orders: Run, name: str) -> None:
    none = orders("quarantine", "retry", "shop.orders", name, "--missing", "refuse")
    assert "2 records still do not fit" in none.out
    done = orders("quarantine", "retry", "shop.orders", name, "--missing", "null", "--json").json
    assert (done["written"], done["left"]) == (1, 1)
    assert orders("get", "shop.orders", "3", "--json").code == 0


def test_what_goes_has_to_be_said(orders: Run, name: str) -> None:
    unsaid = orders("quarantine", "purge", "shop.orders", "--json")
    assert (unsaid.code, unsaid.json["error"]["code"]) == (1, "invalid_request")
    assert "2 records of 1 set deleted" in orders("quarantine", "purge", "shop.orders", name).out
    assert "nothing was set aside" in orders("quarantine", "list", "shop.orders").out


def test_a_set_that_is_not_there(orders: Run, name: str) -> None:
    missed = orders("quarantine", "show", "shop.orders", name[:-1], "--json")
    assert (missed.code, missed.json["error"]["code"]) == (3, "not_found")
    assert name in missed.json["error"]["message"]
