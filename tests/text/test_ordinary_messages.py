"""Ordinary messages are opened without a closer look: what comes of any batch is what a look at each message makes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lithify.core.json_rows import RowMisfit, columns_of
from lithify.text.debezium import OP, UNAVAILABLE, Envelope
from lithify.text.json_lines import message_batch
from lithify.text.text_rows import Target

PLAIN = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.float64())])
TIMED = PLAIN.append(pa.field("at", pa.timestamp("us")))
DIGITS = PLAIN.set(2, pa.field("n", pa.decimal128(20, 4)))
KEY = ("id",)


class Careful(Envelope):
    def opened_at_once(self, message: Any) -> dict[str, Any] | None:
        return None


names = st.sampled_from(["a", "b", UNAVAILABLE, None, 7])
images: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.just([]),
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.one_of(st.integers(0, 3), st.none(), st.just(2**63), st.just("4"), st.just(1.5)),
            "name": names,
            "n": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.just([1])),
            "at": st.sampled_from([1000, "2026-01-01T00:00:00", None]),
            "more": st.integers(),
            OP: st.just("d"),
        },
    ),
)
words = st.sampled_from(["c", "u", "r", "d", "t", "m", "insert", "delete", "", "U", None, 1, ["c"]])
bodies = st.fixed_dictionaries(
    {"op": words}, optional={"before": images, "after": images, "source": st.just({"lsn": 5}), "payload": images}
)
messages = st.one_of(bodies, st.fixed_dictionaries({"payload": bodies}), st.none(), st.just([]), st.just(1))


@settings(deadline=None, max_examples=300)
@given(
    st.lists(messages, max_size=5),
    st.sampled_from([(PLAIN, ()), (PLAIN, ("n",)), (TIMED, ()), (DIGITS, ())]),
    st.booleans(),
)
def test_a_batch_is_what_its_messages_are(
    given: list[Any], table: tuple[pa.Schema, tuple[str, ...]], all: bool
) -> None:
    columns, order = table
    named = tuple(columns.names) if all else ()
    texts = [json.dumps(message).encode() for message in given]

    found, expected = (
        message_batch(
            texts,
            "feed",
            Target(
                columns.append(pa.field(OP, pa.string())), op_column=OP, envelope=kind(columns, KEY, order), named=named
            ),
        )
        for kind in (Envelope, Careful)
    )

    assert (found.rows, found.bad, found.names) == (expected.rows, expected.bad, expected.names)


@pytest.mark.parametrize("op", ["c", "u", "r", "insert", "upsert"])
def test_an_upsert_is_opened_at_once_and_nothing_else(op: str) -> None:
    row = {"id": 1, "name": "a"}
    envelope = Envelope(PLAIN, KEY)
    assert envelope.opened_at_once({"op": op, "after": dict(row)}) == {**row, OP: "upsert"}
    assert envelope.opened_at_once({"op": op, "after": None}) is None
    assert envelope.opened_at_once({"op": op, "after": {"id": 1, "name": UNAVAILABLE}}) is None
    assert envelope.opened_at_once({"payload": {"op": op, "after": row}}) is None
    assert envelope.opened_at_once({"op": "d", "before": row, "after": None}) is None
    assert Envelope(TIMED, KEY).opened_at_once({"op": op, "after": dict(row)}) is None
    assert Envelope(PLAIN, KEY, ("n",)).opened_at_once({"op": op, "after": dict(row)}) is None


@settings(deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({"id": st.integers(0, 9)}, optional={"name": st.just("a"), "x": st.just(1)}), min_size=1
    )
)
def test_rows_that_name_the_same_columns_are_as_any_others(rows: list[dict[str, Any]]) -> None:
    """Behind a last row that names none, no two are alike, and each is looked at."""
    try:
        expected: Any = columns_of([*rows, {}], PLAIN).slice(0, len(rows))
    except RowMisfit as misfit:
        expected = misfit.index, misfit.why
    try:
        found: Any = columns_of(rows, PLAIN)
    except RowMisfit as misfit:
        found = misfit.index, misfit.why
    assert found == expected


@pytest.mark.parametrize("order", [("id", "name"), ("name", "id")])
def test_values_stay_in_their_columns_whatever_the_order(order: tuple[str, str]) -> None:
    rows = [{name: {"id": n, "name": f"row {n}"}[name] for name in order} for n in range(3)]
    assert columns_of(rows, PLAIN).select(["id", "name"]).to_pylist() == [
        {"id": n, "name": f"row {n}"} for n in range(3)
    ]
