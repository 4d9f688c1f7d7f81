"""Which processes are gone, told without a clock that two machines would have to agree on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from lithify import Lake, Settings
from lithify.jobs import jobs, recovery
from lithify.jobs.manifest import Job
from lithify.tables import presence
from lithify.tables.runtime import Owner, Runtime
from support.machines import World

SILENT_S = presence.SILENT_LEASES * 60
DAY_S = 86_400


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    with Lake(folder / "lake", settings=Settings(lease_s=60)) as lake:
        yield World(lake._runtime, folder / "lake")
        for runtime, job in begun:
            presence.end(runtime, job.id)
        begun.clear()


begun: list[tuple[Runtime, Job]] = []


def begin(runtime: Runtime, **more: bool) -> Job:
    job = jobs.begin(runtime, "a.t", "fold", "base", **more)
    begun.append((runtime, job))
    return job


@pytest.mark.parametrize("off_s", [-600, 0, 600])
def test_a_job_is_left_alone_until_its_owner_was_seen_silent_for_long(world: World, off_s: float) -> None:
    here, there = world.machine("here"), world.machine("there", off_s)
    job = begin(here)
    assert jobs.under_way(there) == [job]
    world.passed_s += SILENT_S - 1
    assert jobs.under_way(there) == [job]
    world.passed_s += 1
    assert jobs.under_way(there) == []
    assert jobs.under_way(here) == [job], "whoever runs it knows better"
    jobs.finish(here, job)


def test_any_sign_of_life_of_its_process_keeps_a_job(world: World) -> None:
    here, there = world.machine("here"), world.machine("there")
    job = begin(here)
    for _ in range(4):
        world.passed_s += SILENT_S - 60
        another = begin(here)
        assert job in jobs.under_way(there)
        jobs.finish(here, another)
    jobs.finish(here, job)


def test_who_looks_for_the_first_time_goes_by_the_storage(world: World) -> None:
    job = begin(world.machine("here"))
    world.passed_s += SILENT_S + presence.SKEW_S - 1
    assert jobs.under_way(world.machine("first")) == [job]
    world.passed_s += 1
    assert jobs.under_way(world.machine("second")) == []


def test_a_process_of_this_machine_is_looked_up(world: World) -> None:
    here = world.machine("x")
    gone = dataclasses.replace(here, owner=dataclasses.replace(Owner.this_process(), started="another start"))
    begin(gone)
    assert jobs.under_way(here) == []


def test_a_process_of_another_machine_with_the_same_name_is_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    here = world.machine("x")
    alike = dataclasses.replace(here, owner=dataclasses.replace(Owner.this_process(), started="another start"))
    with monkeypatch.context() as there:
        there.setattr(presence, "machine", lambda: "another one")
        job = begin(alike)
    assert jobs.under_way(here) == [job]


def test_an_owner_that_gives_no_signs_has_a_day(world: World) -> None:
    """A Spark driver, for which the process that began the write cannot speak."""
    job = begin(world.machine("driver"), outlives_us=True)
    there = world.machine("there")
    assert world.bucket.names(there.control / "alive") == []
    world.passed_s += DAY_S
    assert jobs.under_way(there) == [job]
    world.passed_s += 1
    assert jobs.under_way(there) == []


def test_signs_of_life_are_given_while_something_is_under_way(world: World) -> None:
    """Of the thread that gives them, at its own pace."""
    settings = Settings(lease_s=1)
    here = dataclasses.replace(world.machine("here"), settings=settings)
    (name,) = _begun(here, "job")
    path = here.control / "alive" / name
    first = world.bucket.tag(path)
    while world.bucket.tag(path) == first:
        here.pause(0.02)
    presence.end(here, "job")


def _begun(runtime: Runtime, what: str) -> list[str]:
    presence.begin(runtime, what)
    return runtime.store.names(runtime.control / "alive")


def test_what_is_long_past_is_forgotten(world: World) -> None:
    here, there = world.machine("here"), world.machine("there")
    (name,) = _begun(here, "job")
    world.passed_s += presence.FORGOTTEN_HOURS * 3600
    recovery.recover(there)
    assert world.bucket.names(there.control / "alive") == [name]
    world.passed_s += 1
    recovery.recover(there)
    assert world.bucket.names(there.control / "alive") == []
    presence.end(here, "job")
