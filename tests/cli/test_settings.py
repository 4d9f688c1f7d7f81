"""`lithify settings` and `lithify set` without a table: what is set, where, and for whom."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lithify import Lake

Run = Callable[..., Any]
FILE = "lake/_lithify/lithify.toml"


def _shown(orders: Run, *names: str) -> dict[str, tuple[Any, str]]:
    rows = orders("settings", *names, "--json").json["settings"]
    return {row["setting"]: (row["value"], row["from"]) for row in rows}


def test_each_value_and_where_it_comes_from(orders: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lithify.toml").write_text("fold_files_max = 7\nport = 1\n")
    (tmp_path / FILE).write_text("fold_files_max = 8\ncheckpoint_every = 9\n")
    monkeypatch.setenv("LITHIFY_PORT", "2")
    monkeypatch.setenv("LITHIFY_TOKEN", "lith_secret")
    shown = _shown(orders)
    assert shown["port"] == (2, "LITHIFY_PORT")
    assert shown["fold_files_max"] == (7, str(tmp_path / "lithify.toml"))
    assert shown["checkpoint_every"] == (9, str(tmp_path / FILE))
    assert shown["jobs_max"] == (2, "default")
    assert "lith_secret" not in orders("settings").out
    assert "jobs_max" not in orders("settings").out
    assert "jobs_max" in orders("settings", "--all").out


def test_a_setting_of_the_lake_holds_for_who_opens_it(orders: Run, tmp_path: Path) -> None:
    assert orders("set", "checkpoint_every=9", 'actor=A "B" ü', "pack_target_bytes=64MiB").code == 0
    with Lake(tmp_path / "lake") as lake:
        settings = lake._runtime.settings
        assert (settings.checkpoint_every, settings.actor) == (9, 'A "B" ü')
        assert settings.pack_target_bytes == 64 * 2**20
    assert "checkpoint_every is 20" in orders("set", "checkpoint_every=default").out
    assert _shown(orders, "checkpoint_every", "actor") == {
        "checkpoint_every": (20, "default"),
        "actor": ('A "B" ü', str(tmp_path / FILE)),
    }


def test_what_else_stands_in_the_file_stays(orders: Run, tmp_path: Path) -> None:
    said = '# ours\nfold_files_max = 8  # few\n\n[[tiers]]\nname = "hourly"\nfiles_min = 3\n'
    (tmp_path / FILE).write_text(said)
    assert orders("set", "jobs_max=3").code == 0
    assert (tmp_path / FILE).read_text() == said.replace("\n[[tiers]]", "\njobs_max = 3\n[[tiers]]")
    assert orders("set", "jobs_max=default").code == 0
    assert (tmp_path / FILE).read_text() == said


def test_a_value_that_wins_elsewhere_is_told(orders: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITHIFY_PORT", "2")
    assert "port is set elsewhere too, which wins" in orders("set", "port=3").out


@pytest.mark.parametrize(
    ("given", "said", "code"),
    [
        (["prt=1"], "there is no setting 'prt': did you mean 'port'?", 1),
        (["port=many"], "setting 'port': ", 1),
        (["port=1", "jobs_max=0"], "setting 'jobs_max'", 1),
        (["lake=/elsewhere"], "lake: a lake cannot say that of itself", 1),
        (["shop.orders"], "which option of shop.orders?", 1),
    ],
)
def test_what_does_not_hold_is_refused_and_nothing_is_written(
    orders: Run, tmp_path: Path, given: list[str], said: str, code: int
) -> None:
    answer = orders("set", *given)
    assert (answer.code, said in " ".join(answer.err.split())) == (code, True), answer.err
    assert not (tmp_path / FILE).exists()


def test_a_setting_over_several_lines_is_left_to_its_owner(orders: Run, tmp_path: Path) -> None:
    said = 'roles = [\n  "read",\n]\n'
    (tmp_path / FILE).write_text(said)
    answer = orders("set", 'roles=["write"]')
    assert "change it there by hand" in answer.err
    assert (tmp_path / FILE).read_text() == said


def test_what_others_may_have_written_does_not_become_ours(orders: Run, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('spark_conf = {"spark.driver.extraJavaOptions" = "-javaagent:/tmp/evil.jar"}\n')
    (tmp_path / FILE).chmod(0o666)
    answer = orders("set", "jobs_max=3")
    assert answer.code == 1
    assert "others can write to it" in answer.err
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o666


def test_a_file_that_was_read_counts_as_it_is(orders: Run, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('[spark_conf]\n"a.b" = "c"\n')
    (tmp_path / FILE).chmod(0o644)
    shown = orders("settings", "spark_conf")
    assert "--as-it-is" in shown.err
    refused = orders("set", "jobs_max=3")
    assert (refused.code, "pass --as-it-is first" in " ".join(refused.err.split())) == (1, True)

    answer = orders("set", "--as-it-is", "--json")

    counts = ["spark_conf (it can run programs)"]
    assert answer.json == {"files": [{"file": str(tmp_path / FILE), "counts": counts}]}
    assert _shown(orders, "spark_conf")["spark_conf"] == ({"a.b": "c"}, str(tmp_path / FILE))
    assert orders("set", "jobs_max=3").code == 0
    assert orders("set").code == 1
    assert orders("set", "--as-it-is", "jobs_max=3").code == 1


@pytest.mark.parametrize(
    ("given", "shown"),
    [("worker_memory=2048", "2048"), ("actor=123", "123"), ("actor=nan", "nan"), ("file_mode=640", 0o640)],
)
def test_a_value_is_taken_as_its_setting_takes_it(orders: Run, given: str, shown: Any) -> None:
    assert orders("set", given).code == 0
    name = given.partition("=")[0]
    assert _shown(orders, name)[name][0] == shown


@pytest.mark.parametrize("given", ["a b=1", ".*=1", "actor=\x7f", "jobs_max=5\nlake='/etc'"])
def test_what_is_no_setting_is_refused(orders: Run, tmp_path: Path, given: str) -> None:
    assert orders("set", given).code == 1
    assert not (tmp_path / FILE).exists()


def test_a_setting_that_does_not_exist(orders: Run) -> None:
    answer = orders("settings", "fold_file_max")
    assert answer.code == 3
    assert "did you mean 'fold_files_max'" in answer.err


def test_a_misspelt_variable_is_told(process: Run, orders: Run, tmp_path: Path) -> None:
    answer = process("tables", "--lake", str(tmp_path / "lake"), environment={"LITHIFY_FOLD_FILE_MAX": "3"})
    assert answer.code == 0
    assert "LITHIFY_FOLD_FILE_MAX in the environment is no setting: did you mean 'LITHIFY_FOLD_FILES_MAX'" in answer.err
