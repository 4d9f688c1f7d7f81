"""Documents of a service as values, also those of a server that is a little older or newer."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from lithify import Commit, CycleReport, InvalidRequest, Unavailable
from lithify.client.documents import (
    answered_rows,
    as_of_document,
    cycle_report_of,
    definition_of,
    field_of,
    ipc_of,
    key_text,
    rebuilt,
    rows_in,
)
from lithify.maintenance.backoff import Waiting
from lithify.maintenance.reports import JobOutcome, Skipped

COMMIT = {"table": "a.b", "seq": 7, "operation": "upsert", "rows": 1}
ROWS = pa.table({"id": [1, 2, 3]})


def test_fields_that_are_not_known_are_left_out() -> None:
    assert rebuilt(Commit, {**COMMIT, "invented": 1}) == Commit("a.b", 7, "upsert", 1)


def test_large_numbers_come_as_text() -> None:
    assert rebuilt(Commit, {**COMMIT, "seq": str(2**60)}).seq == 2**60


@pytest.mark.parametrize("document", [None, [], "text", {}, {"table": "a.b"}])
def test_what_is_no_such_document(document: object) -> None:
    with pytest.raises(Unavailable, match="no Commit"):
        rebuilt(Commit, document)


@pytest.mark.parametrize("document", [None, [], {}])
def test_a_part_that_is_missing(document: object) -> None:
    with pytest.raises(Unavailable, match="'tables'"):
        field_of(document, "tables")


def test_a_report_of_a_cycle_comes_back() -> None:
    report = CycleReport(
        "c1",
        "policies",
        1_000,
        2.5,
        jobs=(JobOutcome("a.b", "fold", None, "", "due", "failed", 1.0, reason="disk"),),
        skipped=(Skipped("a.c", "waits"),),
        recovered=("cleared up",),
        waiting=(Waiting("a.b", "fold", "", "disk", 2, 1, 900),),
        problems=("trouble",),
        owner="host-1",
    )
    assert cycle_report_of(report.document()) == report


def test_options_that_this_version_does_not_know_are_left_out() -> None:
    definition = definition_of(
        {
            "columns": [{"name": "id", "type": "int64", "nullable": False}],
            "key": ["id"],
            "options": {"compression_level": 9, "invented": 1},
            "options_effective": {"compression_level": 9, "fold_files_max": 7, "invented": 1},
        }
    )
    assert definition.settings == {"lithify.compression_level": "9"}
    assert (definition.options["compression_level"], definition.options["fold_files_max"]) == (9, 7)


@pytest.mark.parametrize("compress_bytes_min", [0, 2**30], ids=["packed", "plain"])
def test_rows_there_and_back(compress_bytes_min: int) -> None:
    assert rows_in(ipc_of(ROWS, compress_bytes_min)) == ROWS


def test_an_answer_that_lost_its_end_is_no_answer() -> None:
    whole = ipc_of(ROWS, 2**30)
    for end in range(len(whole) - 8):
        with pytest.raises(Unavailable):
            answered_rows(whole[:end], {"row-count": "3"})
    assert answered_rows(whole, {"row-count": "3"}) == ROWS


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ({"id": 7}, "7"),
        ({"id": 2**60}, str(2**60)),
        ({"on": True}, "true"),
        ({"name": "a b"}, "a b"),
        ({"day": dt.date(2026, 11, 15)}, "2026-11-15"),
        ({"raw": b"\xff"}, "/w=="),
        ({"order": 1, "line": "ü"}, '{"order": 1, "line": "ü"}'),
    ],
)
def test_keys_in_an_address(key: dict[str, object], text: str) -> None:
    assert key_text(key) == text


@pytest.mark.parametrize(
    ("as_of", "document"),
    [(None, None), (7, 7), ("7", "7"), (dt.datetime(2026, 11, 15, tzinfo=dt.UTC), "2026-11-15T00:00:00+00:00")],
)
def test_moments(as_of: object, document: object) -> None:
    assert as_of_document(as_of) == document


@pytest.mark.parametrize("as_of", [True, 1.5, [1]])
def test_what_is_no_moment(as_of: object) -> None:
    with pytest.raises(InvalidRequest, match="as_of is a seq"):
        as_of_document(as_of)
