"""pipeline run, list, history: as far as they go without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lithify import Lake, Settings
from lithify.lake.internals import internals
from lithify.pipelines.past_runs import remember
from lithify.pipelines.reports import PipelinePlan, PipelineReport, StepPlan, StepReport
from lithify.tools.check import Status
from lithify.tools.doctor import check_pipelines

Run = Callable[..., Any]

TOML = """
[[pipelines.sales.steps]]
name = "daily"
table = "shop.clean"
by = ["day"]
sql = "select day, sum(amount) as revenue from source group by day"
target = "shop.daily"
key = "day"

[[pipelines.raw.steps]]
files = "inbox/*.json"
target = "shop.clean"
key = "id"
[[pipelines.raw.steps.expect]]
name = "positive"
that = "amount > 0"
otherwise = "warn"
"""


@pytest.fixture
def declared(orders: Run, tmp_path: Path) -> Run:
    (tmp_path / "lithify.toml").write_text(TOML)
    return orders


def test_list_tells_the_steps_in_order(declared: Run) -> None:
    steps = declared("pipeline", "list", "--json").json["steps"]
    assert [(step["pipeline"], step["step"], step["kind"]) for step in steps] == [
        ("raw", "clean", "files"),
        ("sales", "daily", "groups"),
    ]
    assert steps[0]["expectations"] == ["positive"]
    assert "shop.daily" in declared("pipeline", "list").out


def test_status_tells_what_ran_and_how_far_behind_it_is(declared: Run, tmp_path: Path) -> None:
    with Lake(tmp_path / "lake") as lake:
        failed = PipelineReport("raw", "1", 1_700_000_000_000, "failed", [], 0.5, "it did not hold")
        remember(internals(lake).runtime, failed)
    raw, sales = sorted(declared("pipeline", "status", "--json").json["pipelines"], key=lambda each: each["pipeline"])
    assert (raw["state"], raw["error"], raw["files"], raw["schedule"]) == ("failing", "it did not hold", 0, None)
    assert (sales["state"], sales["steps"][0]["why"]) == ("on request", "shop.clean is not there yet")
    text = declared("pipeline", "status", "raw").out
    assert "it did not hold" in text
    assert "2023-11-14 22:13:20" in text
    assert declared("pipeline", "status", "row").code == 3


def test_what_runs_by_itself_is_listed_where_it_may(declared: Run, tmp_path: Path) -> None:
    toml = TOML + '[pipelines.sales]\nevery = "5m"\n[streams.landing]\nsource = "in"\ntarget = "shop.orders"\n'
    (tmp_path / "told.toml").write_text(toml)
    steps = declared("pipeline", "list", "--json", "--config", str(tmp_path / "told.toml")).json["steps"]
    assert [(step["pipeline"], step["kind"], step["schedule"]) for step in steps] == [
        ("raw", "files", None),
        ("sales", "groups", "every 300 s"),
        ("landing", "stream", "every 10 s"),
    ]


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("run",)])
def test_a_declaration_that_does_not_hold_is_an_error_at_the_start(
    declared: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "told.toml").write_text('[streams.landing]\nsource = "in"\ntarget = "shop.orders"\nevery = "soon"\n')
    answer = declared(*command, "--config", str(tmp_path / "told.toml"))
    assert answer.code == 1
    assert "stream landing: every = 'soon' is no time from 1s to 168h" in " ".join(answer.err.split())


def test_a_lake_keeps_only_declarations_that_hold(declared: Run) -> None:
    answer = declared("set", 'streams={ landing = { source = "in", target = "shop.orders", cron = "never" } }')
    assert answer.code == 1
    assert "stream landing: 'never' is no cron expression" in " ".join(answer.err.split())
    kept = declared("set", 'streams={ landing = { source = "in", target = "shop.orders", cron = "0 * * * *" } }')
    assert kept.code == 0, kept.err
    assert declared("pipeline", "status", "landing", "--json").json["pipelines"][0]["cron"] == "0 * * * *"


def test_nothing_to_do(declared: Run) -> None:
    answer = declared("pipeline", "run", "--json")
    assert answer.code == 0
    assert [run["outcome"] for run in answer.json["runs"]] == ["idle", "idle"]
    assert [run["steps"][0]["why"] for run in answer.json["runs"]] == ["no files yet", "shop.clean is not there yet"]
    text = declared("pipeline", "run").out
    assert "up to date" in text
    assert "no files yet" not in declared("pipeline", "history").out


def test_without_pipelines(orders: Run) -> None:
    assert "no pipelines are declared" in orders("pipeline", "list").out
    answer = orders("pipeline", "run")
    assert (answer.code, "no pipelines are declared" in answer.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sale",), "there is no pipeline 'sale' in lithify.toml: there is sales, raw"),
        (("sales", "--step", "dayly"), "pipeline sales has no step 'dayly': it has daily"),
        (("--step", "daily"), "name the pipeline too"),
        (("--once", "--every", "5s"), "--once and --every are two ways"),
        (("--dry-run", "--every", "5s"), "leave out --every"),
        (("--every", "soon"), "--every 'soon' is no time from 1s to 168h"),
        (("--server", "http://x"), "does not work through a service"),
    ],
)
def test_mistakes(declared: Run, arguments: tuple[str, ...], message: str) -> None:
    answer = declared("pipeline", "run", *arguments)
    assert answer.code == 1
    assert message in " ".join(answer.err.split())


def test_a_bad_declaration_is_told_and_breaks_nothing_else(declared: Run, tmp_path: Path) -> None:
    (tmp_path / "lithify.toml").write_text(TOML.replace("key =", "kye ="))
    answer = declared("pipeline", "list")
    assert answer.code == 1
    assert "step 'daily' of pipeline sales has a key 'kye' that is not known: did you mean 'key'?" in answer.err
    assert declared("tables").code == 0


def test_a_circle_is_told(declared: Run, tmp_path: Path) -> None:
    circle = TOML.replace('files = "inbox/*.json"', 'table = "shop.daily"')
    (tmp_path / "lithify.toml").write_text(circle)
    answer = declared("pipeline", "run")
    assert answer.code == 1
    assert "go round in a circle" in answer.err


def test_history_tells_each_step_of_each_run(declared: Run, tmp_path: Path) -> None:
    done = StepReport(
        "raw.clean", "files", "done", "inbox/*.json", "shop.clean", files=2, read=7, written=6, warned={"positive": 1}
    )
    failed = StepReport("sales.daily", "groups", "failed", "shop.clean", "shop.daily", since=3, until=5)
    with Lake(tmp_path / "lake") as lake:
        remember(internals(lake).runtime, PipelineReport("raw", "1", 1_700_000_000_000, "done", [done], 1.5))
        report = PipelineReport("sales", "2", 1_700_000_100_000, "failed", [failed], 0.5, "it did not hold")
        remember(internals(lake).runtime, report)

    text = declared("pipeline", "history").out

    assert "inbox/*.json (2 files)" in text
    assert "shop.clean 3 → 5" in text
    assert "sales: it did not hold" in text
    assert [run["run"] for run in declared("pipeline", "history", "raw", "--json").json["runs"]] == ["1"]


def test_reports_and_plans_show_themselves_in_a_notebook() -> None:
    step = StepReport("raw.<b>", "files", "done", "inbox", "shop.clean", read=7)
    html = PipelineReport("raw", "1", 0, "done", [step], 1.0)._repr_html_()
    assert "raw.&lt;b&gt;" in html
    plan = StepPlan("raw.clean", "files", "inbox", "shop.clean", "files", "new files")
    assert "new files" in PipelinePlan("raw", [plan])._repr_html_()


def test_the_doctor_tells_what_does_not_hold_and_what_fails(tmp_path: Path) -> None:
    step = {"table": "a.b", "target": "a.c", "key": "id"}
    with Lake(tmp_path / "lake", create=True, settings=Settings(pipelines={"p": {"steps": [step]}})) as lake:
        assert [check.status for check in check_pipelines(lake)] == [Status.ok]
        remember(internals(lake).runtime, PipelineReport("p", "1", 1_000, "failed", [], 1.0, "it did not hold"))
        (check,) = check_pipelines(lake)
        assert (check.status, check.found, check.advice) == (
            Status.warn,
            "1 declared, 1 failing",
            "p: it did not hold",
        )
    wrong = Settings(pipelines={"p": {"steps": [step], "every": "soon"}})
    with Lake(tmp_path / "lake", settings=wrong) as lake:
        (check,) = check_pipelines(lake)
        assert check.status == Status.fail
        assert "pipeline p: every = 'soon'" in check.advice
    with Lake(tmp_path / "lake") as lake:
        assert check_pipelines(lake) == []
