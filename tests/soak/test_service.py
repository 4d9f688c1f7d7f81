"""A service in steady use takes no more after a while than before: a minute here, hours in `make soak-service`."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from soak.service import BOUNDS, Sample, exceeded
from support.effort import examples
from support.folders import memory_folder

PROGRAM = Path(__file__).with_name("service.py")
OPERATIONS = examples(1_500, 100_000)
TABLES = examples(8, 50)
SECONDS_MAX = examples(600, 8 * 3_600)
FLAT = Sample(0, 0.0, 250.0, 300.0, 60, 20, 2, 500, 20.0, 900, 20.0, 30.0)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as path:
        yield path


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_service_in_steady_use_stays_flat(folder: Path) -> None:
    asked = ["--operations", str(OPERATIONS), "--tables", str(TABLES), "--clients", "4", "--without-latency"]
    run = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder / "soak"), *asked],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout[-3000:]}\n{run.stderr[-3000:]}"


@pytest.mark.parametrize("name", BOUNDS)
def test_what_grows_is_noticed(name: str) -> None:
    flat = [FLAT] * 40
    assert exceeded(flat) == []
    grown = dataclasses.replace(FLAT, **{name: getattr(FLAT, name) * 4 + 2_000})
    assert len(exceeded([*flat[:30], *[grown] * 10])) == 1
    assert exceeded([*[grown] * 10, *flat[10:]]) == [], "before everything is warm it does not count"


def test_how_long_things_take_can_be_left_out() -> None:
    slow = dataclasses.replace(FLAT, read_p99_ms=10_000.0, write_p99_ms=10_000.0)
    assert exceeded([*[FLAT] * 30, *[slow] * 10], latency=False) == []
