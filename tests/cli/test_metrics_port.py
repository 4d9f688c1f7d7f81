"""--metrics-port: what Prometheus reads of processes that serve nothing else."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lithify import InvalidRequest, Lake, Settings, Unavailable
from lithify.cli.metrics_port import address_and_port, metrics_served
from lithify.lake.internals import internals
from lithify.pipelines.past_runs import remember
from lithify.pipelines.reports import PipelineReport
from lithify.pipelines.run_tally import RunTally, Tallied

Run = Callable[..., Any]
STEP = {"table": "a.b", "target": "a.c", "key": "id"}


class Aside:
    """What a command says beside its answer."""

    def __init__(self) -> None:
        self.told = ""

    @property
    def out(self) -> Aside:
        return self

    def aside(self, text: str) -> None:
        self.told = text


def scraped(url: str) -> str:
    """By hand: the client in this process may be told to go through a proxy."""
    host, port = re.fullmatch(r"http://([\d.]+):(\d+)/metrics", url).groups()  # type: ignore[union-attr]
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts).decode()


def test_pipelines_are_told_without_a_token_and_nothing_is_left_behind(tmp_path: Path) -> None:
    settings = Settings(pipelines={"sales": {"steps": [STEP], "every": "1h"}})
    aside: Any = Aside()
    with Lake(tmp_path / "lake", create=True, settings=settings) as lake:
        runtime = internals(lake).runtime
        for number in range(2):
            remember(runtime, PipelineReport("sales", f"{number}", 1_000 * number, "failed", [], 1.0, "why"))
        lake.pipeline_runner.check()
        with metrics_served(aside, lake, "0"):
            url = aside.told.removeprefix("metrics at ")
            text = scraped(url)
            assert 'lithify_pipeline_failures{pipeline="sales"} 2.0' in text
            assert "lithify_build_info" in text
            runtime.shared(RunTally).ended("sales", 5_000, 3)
            text = scraped(url)
            assert 'lithify_pipeline_failures{pipeline="sales"} 0.0' in text
            assert 'lithify_pipeline_lag_seqs{pipeline="sales"} 3.0' in text
            assert 'lithify_pipeline_succeeded_seconds{pipeline="sales"} 5.0' in text
        with pytest.raises(OSError, match="refused"):
            scraped(url)


def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    aside: Any = Aside()
    with Lake(tmp_path / "lake", create=True) as lake, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(Unavailable, match=f"port {port} of 127.0.0.1 is in use"),
            metrics_served(aside, lake, str(port)),
        ):
            pass


def test_an_address_may_be_named() -> None:
    assert address_and_port("9100") == ("127.0.0.1", 9100)
    assert address_and_port("0.0.0.0:9100") == ("0.0.0.0", 9100)
    assert address_and_port("[::1]:0") == ("::1", 0)
    for wrong in ("x", "70000", "a:b", "", "-1", "²"):
        with pytest.raises(InvalidRequest, match="is no port from 0 to 65535"):
            address_and_port(wrong)


@pytest.mark.parametrize("command", [("run", "--once"), ("pipeline", "run"), ("stream", ".", "shop.orders", "--once")])
def test_commands_take_it(orders: Run, command: tuple[str, ...]) -> None:
    answer = orders(*command, "--metrics-port", "nope")
    assert answer.refused
    assert "--metrics-port 'nope' is no port" in " ".join(answer.err.split())


def test_there_are_no_more_series_than_fifty_of_the_worst(tmp_path: Path) -> None:
    from prometheus_client import generate_latest

    from lithify.lake.lake_metrics import lake_registry

    with Lake(tmp_path / "lake", create=True) as lake:
        tally = internals(lake).runtime.shared(RunTally)
        for number in range(80):
            tally.tell(f"p{number:02}", Tallied(failures=number))
        text = generate_latest(lake_registry(lake, "1")).decode()
    found = re.findall(r'lithify_pipeline_failures\{pipeline="p(\d+)"\}', text)
    assert sorted(map(int, found)) == list(range(30, 80))
