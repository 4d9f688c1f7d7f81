"""`lithify detach` and `attach`: a day out of a table and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Run = Any


def test_a_day_goes_out_and_comes_back(cli: Run, tmp_path: Path) -> None:
    out = str(tmp_path / "day")
    assert cli("create", "a.t", "-c", "id:int64", "-c", "at:date", "--key", "id", "--time", "at").code == 0
    lines = [{"id": number, "at": f"2026-11-{1 + number % 2:02}"} for number in range(6)]
    cli("write", "a.t", stdin="".join(json.dumps(line) + "\n" for line in lines))

    moved = cli("detach", "a.t", "2026-11-02", out, "--reason", "archive", "--json")
    left = json.loads(cli("sql", "select id from a.t order by id", "--json").out)
    back = cli("attach", "a.t", out)

    assert (moved.code, json.loads(moved.out)["rows"]) == (0, 3)
    assert [row["id"] for row in left["rows"]] == [0, 2, 4]
    assert (back.code, "3 rows" in back.out) == (0, True)
    assert len(json.loads(cli("sql", "select id from a.t", "--json").out)["rows"]) == 6


def test_a_wrong_day_is_a_clear_error(cli: Run, tmp_path: Path) -> None:
    cli("create", "a.t", "-c", "id:int64", "-c", "at:date", "--key", "id", "--time", "at")

    answer = cli("detach", "a.t", "2026-02-30", str(tmp_path / "day"))

    assert answer.code == 1
    assert "2026-02-30" in answer.err
