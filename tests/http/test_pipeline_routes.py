"""Declared pipelines and streams over HTTP: what is told of them, to whom, and a run on request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import lithify
from lithify import Lake, Settings
from lithify.http.tokens import Tokens
from lithify.lake.internals import internals
from lithify.pipelines.past_runs import remember
from lithify.pipelines.reports import PipelineReport, StepReport
from support.folders import copied
from support.waiting import eventually

from .conftest import Served

ClientWith = Callable[..., TestClient]
DAILY = {
    "name": "daily",
    "table": "shop.orders",
    "sql": "select id, amount from source where amount > 1",
    "target": "shop.daily",
    "key": "id",
    "expect": [{"name": "positive", "that": "amount > 0", "otherwise": "quarantine"}],
}
LATER = {"name": "s", "files": "inbox/*.json", "target": "log.later", "key": "id"}
NIGHTLY = {"name": "s", "table": "log.events", "target": "log.copy", "mode": "append", "key": []}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        port=0,
        shutdown_s=5,
        cache_bytes_max=64 * 2**20,
        pipelines={
            "sales": {"steps": [DAILY], "on": "shop.orders"},
            "inbox": {"steps": [LATER], "every": "30s"},
            "nightly": {"steps": [NIGHTLY], "cron": "0 3 * * *"},
        },
        streams={"landing": {"source": str(tmp_path), "target": "log.events", "format": "json"}},
    )


@pytest.fixture
def lake(template: Path, tmp_path: Path, settings: Settings) -> Iterator[Lake]:
    with Lake(copied(template, tmp_path / "lake"), settings=settings) as lake:
        yield lake


def past(lake: Lake, number: int, outcome: Any = "done", reason: str | None = None) -> None:
    step = StepReport("sales.daily", "rows", outcome, "shop.orders", "shop.daily", written=number, quarantined=1)
    report = PipelineReport("sales", f"run{number}", 1_800_000_000_000 + number, outcome, [step], 1.5, reason)
    remember(internals(lake).runtime, report)


def test_they_are_listed_in_pages(client: TestClient) -> None:
    first = client.get("/v1/pipelines", params={"limit": 2}).json()
    assert ([each["pipeline"] for each in first["pipelines"]], first["more"]) == (["sales", "inbox"], True)
    rest = client.get("/v1/pipelines", params={"after": "inbox"}).json()
    assert ([each["pipeline"] for each in rest["pipelines"]], rest["more"]) == (["nightly", "landing"], False)
    assert client.get("/v1/pipelines", params={"after": "nope"}).json()["pipelines"] == []


def test_one_says_when_it_runs_how_far_behind_it_is_and_what_came_of_its_last_run(
    client: TestClient, lake: Lake
) -> None:
    past(lake, 1)
    past(lake, 2, "failed", f"the file {lake.path}/shop/x is gone")
    found = client.get("/v1/pipelines/sales").json()
    assert (found["state"], found["schedule"], found["on"]) == ("failing", "when shop.orders changes", "shop.orders")
    assert (found["failures"], found["error"]) == (1, "the file shop/x is gone")
    assert (found["lag"], found["here"], found["next_ms"], found["running"]) == (1, False, None, None)
    assert (found["last"]["run"], found["succeeded_ms"]) == ("run2", 1_800_000_001_501)
    (step,) = found["steps"]
    assert (step["table"], step["target"], step["why"]) == ("shop.orders", "shop.daily", "it has not run yet")
    assert step["expectations"] == ["positive: amount > 0, otherwise quarantine"]
    stream = client.get("/v1/pipelines/landing").json()
    assert (stream["kind"], stream["schedule"], stream["steps"][0]["kind"]) == ("stream", "every 10 s", "stream")


def test_runs_come_newest_first(client: TestClient, lake: Lake) -> None:
    for number in range(5):
        past(lake, number)
    found = client.get("/v1/pipelines/sales/runs", params={"limit": 2}).json()
    assert (found["pipeline"], [run["run"] for run in found["runs"]]) == ("sales", ["run4", "run3"])
    assert found["runs"][0]["steps"][0]["quarantined"] == 1
    assert client.get("/v1/pipelines/nightly/runs").json()["runs"] == []


def test_a_run_with_nothing_to_do_ends_and_is_told(client: TestClient) -> None:
    begun = client.post("/v1/pipelines/inbox/run")
    assert begun.status_code == 202

    def last() -> Any:
        found = client.get("/v1/pipelines/inbox").json()
        return found["last"] if found["running"] is None else None

    found = eventually(last, "the end of the run")
    assert (found["run"], found["outcome"]) == (begun.json()["run"], "idle")
    assert found["steps"][0]["why"] == "no files yet"


def test_a_dry_run_of_what_has_nothing_to_do_needs_no_spark(client: TestClient) -> None:
    answer = client.post("/v1/pipelines/inbox/run", json={"dry_run": True})
    assert answer.status_code == 200
    (step,) = answer.json()["plan"]["steps"]
    assert (step["step"], step["does"], step["why"]) == ("inbox.s", "nothing", "no files yet")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nope", None, 404),
        ("GET", "/nope/runs", None, 404),
        ("POST", "/nope/run", {}, 404),
        ("GET", "/sales/runs?limit=0", None, 400),
        ("GET", "/sales/runs?limt=1", None, 400),
        ("GET", "?limit=1001", None, 400),
        ("POST", "/sales/run", {"step": "nope"}, 400),
        ("POST", "/sales/run", {"step": 7}, 400),
        ("POST", "/sales/run", {"dryrun": True}, 400),
        ("POST", "/landing/run", {"full": True}, 400),
        ("GET", "/%3Cimg%20src=x%3E", None, 404),
    ],
)
def test_what_is_wrong_is_said(client: TestClient, method: str, path: str, body: Any, status: int) -> None:
    answer = client.request(method, f"/v1/pipelines{path}", json=body)
    assert (answer.status_code, set(answer.json()) >= {"code", "message", "what_to_do", "id"}) == (status, True)


def test_a_run_that_is_under_way_is_a_conflict_with_its_id(client: TestClient, lake: Lake) -> None:
    from lithify.jobs import leases

    ours, _ = leases.acquire(internals(lake).runtime, "pipeline-sales", "theirs", 60, "pipeline sales")
    assert ours
    answer = client.post("/v1/pipelines/sales/run")
    assert (answer.status_code, answer.json()["details"]["run"]) == (409, "theirs")
    found = client.get("/v1/pipelines/sales").json()
    assert (found["state"], found["running"]) == ("running", "theirs")


class TestATokenForSomeTables:
    def test_sees_those_whose_tables_it_may_all_see(self, client_with: ClientWith) -> None:
        limited = client_with("read", table="log.*")
        names = [each["pipeline"] for each in limited.get("/v1/pipelines").json()["pipelines"]]
        assert names == ["inbox", "nightly", "landing"]
        for path in ("/sales", "/sales/runs", "/nope"):
            answer = limited.get(f"/v1/pipelines{path}")
            assert (answer.status_code, "shop" in answer.text) == (404, False)

    def test_runs_those_whose_targets_it_may_write(self, client_with: ClientWith) -> None:
        limited = client_with("write", table="log.later")
        assert limited.post("/v1/pipelines/inbox/run", json={"dry_run": True}).status_code == 200
        assert limited.post("/v1/pipelines/sales/run", json={"dry_run": True}).status_code == 404
        assert limited.get("/v1/pipelines").status_code == 403


def test_the_client_tells_the_same(served: Served, lake: Lake) -> None:
    past(lake, 1)
    with lithify.connect(served.url, served.token) as remote:
        assert remote.pipelines() == ["sales", "inbox", "nightly"]
        here, there = lake.pipeline_status("sales"), remote.pipeline_status("sales")
        assert there == here
        assert [each.pipeline for each in remote.pipeline_status()] == ["sales", "inbox", "nightly", "landing"]
        assert remote.pipeline_runs("sales") == lake.pipeline_runs("sales")
        assert remote.plan_pipeline("inbox").steps[0].does == "nothing"
        run = remote.trigger_pipeline("inbox")
        eventually(lambda: (last := remote.pipeline_status("inbox")[0].last) and last.run == run, "the run")
        with pytest.raises(lithify.NotFound):
            remote.pipeline_status("nope")


def test_a_lake_without_any(template: Path, tmp_path: Path) -> None:
    from lithify.http.app import create_app

    plain = Settings(port=0)
    with Lake(copied(template, tmp_path / "plain"), settings=plain) as lake:
        tokens = Tokens(lake.path)
        _, secret = tokens.create("all", ("admin",))
        app = create_app(lake, plain, tokens)
        with TestClient(app, "http://127.0.0.1", headers={"Authorization": f"Bearer {secret}"}) as client:
            assert client.get("/v1/pipelines").json() == {"pipelines": [], "more": False}
            lake.create_table("a.b", pa.schema([("id", pa.int64())]))
