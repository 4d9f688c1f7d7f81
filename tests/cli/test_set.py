"""Table options from the command line: create --set, set, describe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


def test_create_with_options(cli: Run) -> None:
    made = cli(
        "create", "a.t", "-c", "id:int64", "--set", "row_group_rows=65_536", "--set", "bloom_columns=none", "--json"
    )
    assert made.code == 0
    assert made.json["options"] == {"row_group_rows": 65536, "bloom_columns": []}
    assert made.json["settings"] == {}


def test_set_then_describe_then_back_to_the_default(orders: Run) -> None:
    answer = orders("set", "shop.orders", "compression_level=9", "bloom_columns=id,status")
    assert answer.code == 0
    assert "compression_level is 9; bloom_columns is id, status" in answer.out
    assert "compression_level" in orders("describe", "shop.orders").out
    again = orders("set", "shop.orders", "compression_level=default", "bloom_columns=default")
    assert (
        "compression_level is back to the lake's default: 3; bloom_columns is back to the lake's default: automatic"
        in again.out
    )
    assert orders("describe", "shop.orders", "--json").json["options"] == {"missing_columns": "null"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["compression_level=99"], "option compression_level cannot be '99': it is a whole number from 1 to 19"),
        (["colour=red"], "there is no table option 'colour'"),
        (["compression_level"], "'compression_level' is no table option: write NAME=VALUE"),
        (["compression_level=1", "compression_level=2"], "compression_level is given twice"),
    ],
)
def test_bad_options(orders: Run, given: list[str], message: str) -> None:
    answer = orders("set", "shop.orders", *given)
    assert answer.code == 1
    assert message in " ".join(answer.err.split())
    assert orders("describe", "shop.orders", "--json").json["options"] == {"missing_columns": "null"}


def test_sizes_with_a_unit(orders: Run) -> None:
    answer = orders("set", "shop.orders", "minor_bytes_max=64MiB", "cluster_target_bytes=1.5 GiB")
    assert "minor_bytes_max is 67108864 (64.0 MiB); cluster_target_bytes is 1610612736 (1.5 GiB)" in answer.out
    assert orders("describe", "shop.orders", "--json").json["options"]["minor_bytes_max"] == 64 * 2**20
    assert "67108864 (64.0 MiB)" in orders("describe", "shop.orders").out
    refused = orders("set", "shop.orders", "pack_target_bytes=64 parsecs")
    assert "option pack_target_bytes cannot be '64 parsecs'" in " ".join(refused.err.split())


def test_tiers_are_shown_as_json(orders: Run) -> None:
    tiers = '[{"name": "hourly", "files_min": 20}]'
    answer = orders("set", "shop.orders", f"tiers={tiers}")
    assert answer.code == 0, answer.err
    assert f"tiers is {tiers}" in answer.out
    assert tiers in orders("describe", "shop.orders").out
