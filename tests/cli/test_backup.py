"""`lithify backup`: what is said, and what a script can go by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_from_one_lake_to_another(orders: Run, run: Run) -> None:
    made = orders("backup", "create", "kept", "--json").json
    assert (made["tables"], made["left_out"]) == (1, {})
    assert "0 new files, 0 B" in orders("backup", "create", "kept").out
    listed = run("backup", "list", "kept", "--json").json["backups"]
    assert listed[0]["id"] == made["id"]
    assert "is whole" in run("backup", "verify", "kept").out
    assert "1 table" in run("backup", "restore", "kept", "again", "--id", made["id"]).out
    assert run("sql", "select count(*) as n from shop.orders", "--lake", "again", "--json").json["rows"] == [{"n": 3}]
    assert "1 backup removed" in run("backup", "remove", "kept", "--keep", "1").out


def test_a_damaged_backup_fails_the_command(orders: Run, run: Run, tmp_path: Path) -> None:
    orders("backup", "create", "kept")
    file = next((tmp_path / "kept" / "data").rglob("*.parquet"))
    file.write_bytes(b"PAR1")
    answer = run("backup", "verify", "kept")
    assert answer.code == 1
    assert "has 1 bad file" in answer.out
    assert file.name in answer.out
    assert run("backup", "restore", "kept", "again").code == 1


def test_what_is_not_there(run: Run) -> None:
    answer = run("backup", "list", "kept")
    assert answer.code == 3
    assert "holds no backups: `lithify backup create" in answer.err


def test_removing_says_which(orders: Run, run: Run) -> None:
    orders("backup", "create", "kept")
    assert "say which backups" in run("backup", "remove", "kept").err
    assert run("backup", "remove", "kept", "--keep", "0").code == 2
