"""Erasures through `lithify.connect`: what the lake itself would answer, done by the service's maintenance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lithify
from lithify import ErasurePlan, InvalidRequest, Lake, NotFound, verify_receipt
from lithify.client.erasure import RemoteErasure
from lithify.client.lake import RemoteLake
from support.waiting import eventually

SCHEMA = pa.schema([("id", pa.int64()), ("mail", pa.string())])
ROWS = [{"id": number, "mail": f"person-{number}@example.org"} for number in range(4)]


@pytest.fixture
def people(lake: Lake) -> Iterator[str]:
    lake.create_table("crm.people", SCHEMA, key="id").upsert(ROWS)
    lake.table("crm.people").fold()
    yield "crm.people"
    eventually(lambda: lake.running_cycle() is None)
    lake.drop_table("crm.people")


def test_from_the_plan_to_the_receipt(remote: RemoteLake, lake: Lake, people: str, tmp_path: Path) -> None:
    plan = remote.erase(people, keys=[1], dry_run=True)
    assert isinstance(plan, ErasurePlan)
    assert (plan.table, plan.keys, plan.rows) == (people, 1, 1)
    assert plan == lake.erase(people, keys=[1], dry_run=True)

    erasure = remote.erase(people, pa.array([1]), reason="ticket-9")
    assert isinstance(erasure, RemoteErasure)
    assert remote.table(people).get(1) is None
    assert erasure.salt is not None
    assert erasure.wait(120).state == "done"

    kept = tmp_path / "receipt.json"
    kept.write_bytes(erasure.receipt_bytes())
    assert verify_receipt(str(kept), key=1, salt=erasure.salt).ok
    assert erasure.verify(key=1, salt=erasure.salt).subject is True
    assert erasure.verify(key=2, salt=erasure.salt).subject is False
    assert (erasure.receipt or {})["id"] == erasure.id
    there, here = remote.erasure(erasure.id), lake.erasure(erasure.id)
    assert there.salt is None
    assert there.describe() == here.describe()
    assert (there.places, there.problems, there.blocked_by) == ((), (), ())
    assert erasure.id in [each.id for each in remote.erasures()]


def test_one_that_a_pin_holds_up(remote: RemoteLake, lake: Lake, people: str) -> None:
    lake.table(people).tag("month-end")
    erasure = remote.erase(people, 2, history="cut")
    assert isinstance(erasure, RemoteErasure)
    assert erasure.wait(120).state == "blocked"
    assert "month-end" in str(erasure.blocked_by)
    assert erasure.receipt is None
    assert erasure.cancel().state == "cancelled"


def test_what_is_refused(remote: RemoteLake, people: str) -> None:
    with pytest.raises(InvalidRequest, match="names them"):
        remote.erase(people, [(1, 2)])
    with pytest.raises(InvalidRequest, match="keys, or where"):
        remote.erase(people)
    with pytest.raises(NotFound):
        remote.erase("crm.none", [1])
    with pytest.raises(NotFound, match="no erasure"):
        remote.erasure("0" * 32)
    assert lithify.ErasurePlan is ErasurePlan
