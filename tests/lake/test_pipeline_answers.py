"""What is looked at in an answer before its target is created: told here of answers that have been fetched."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lithify import InvalidRequest
from lithify.app.pipeline_answers import Judged, check_keys
from lithify.model.pipelines import Step

STEP = Step("p", "s", "a.target", table="a.source")


def test_a_null_in_the_key_is_refused_with_a_way_out_that_a_step_has() -> None:
    answer = Judged(pa.table({"day": ["monday", None], "n": [1, 2]}))

    with pytest.raises(InvalidRequest, match=r"step p\.s: 'day', of the key.*null in 1 row.*\"n\": 2") as refused:
        check_keys(STEP, answer, ["day"], computed=True)
    assert 'expect that "day is not null", otherwise = "quarantine"' in str(refused.value)


def test_a_key_may_come_twice_only_among_rows_that_arrive() -> None:
    answer = Judged(pa.table({"day": ["monday", "monday"], "n": [1, 2]}))

    check_keys(STEP, answer, ["day"], computed=False)
    check_keys(STEP, answer, ["day", "n"], computed=True)
    with pytest.raises(InvalidRequest, match="more than one row comes out for a key"):
        check_keys(STEP, answer, ["day"], computed=True)
