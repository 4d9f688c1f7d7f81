"""Leases in a bucket: expiry is judged by the observer's own clock, whatever the clocks of others show."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from lithify import Lake, Settings
from lithify.jobs import leases
from lithify.tables.presence import SKEW_S
from lithify.tables.runtime import Owner, Runtime
from support.effort import examples
from support.machines import World

LENGTH_S = 60
OFF_S = 600


@pytest.fixture
def runtime(folder: Path) -> Iterator[Runtime]:
    with Lake(folder / "lake", settings=Settings()) as lake:
        yield lake._runtime


@pytest.fixture
def world(runtime: Runtime) -> World:
    return World(runtime, Path(runtime.root))


def take(runtime: Runtime) -> leases.Lease | None:
    ours, lease = leases.acquire(runtime, "cycle", runtime.owner.host, LENGTH_S)
    return lease if ours else None


@pytest.mark.parametrize("off_s", [-OFF_S, 0, OFF_S])
def test_a_lease_ends_when_it_was_seen_unchanged_for_its_length(world: World, off_s: float) -> None:
    here, there = world.machine("here"), world.machine("there", off_s)
    mine = take(here)
    assert mine is not None
    assert take(there) is None
    world.passed_s += LENGTH_S - 1
    assert take(there) is None
    assert leases.current(there, "cycle") == mine
    world.passed_s += 1
    theirs = take(there)
    assert theirs is not None
    assert theirs.token == mine.token + 1
    with pytest.raises(leases.LeaseLost, match="taken over by there-7"):
        leases.renew(here, mine)


def test_who_looks_for_the_first_time_waits_or_goes_by_the_storage(world: World) -> None:
    """A command that runs once, again and again, comes to its turn too."""
    assert take(world.machine("gone")) is not None
    world.passed_s += LENGTH_S * 2
    assert take(world.machine("first")) is None
    world.passed_s += SKEW_S
    assert take(world.machine("second")) is not None


def test_a_lease_that_was_given_back_is_free_at_once(world: World) -> None:
    here, there = world.machine("here"), world.machine("there", OFF_S)
    mine = take(here)
    assert mine is not None
    assert take(there) is None
    leases.release(here, mine)
    assert leases.current(there, "cycle") is None
    assert take(there) is not None


def test_a_dead_process_of_this_machine_holds_nothing(world: World, runtime: Runtime) -> None:
    owner = dataclasses.replace(runtime.owner, started="another start")
    assert take(dataclasses.replace(world.machine("here"), owner=owner)) is not None
    assert take(world.machine("there")) is not None


def test_a_machine_of_the_same_name_is_another_one(
    world: World, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes cannot be looked up from here, and it may well be alive."""
    named_alike = Owner(runtime.owner.host, runtime.owner.pid, "another start")
    with monkeypatch.context() as there:
        there.setattr("lithify.jobs.leases.machine", lambda: "another one")
        assert take(dataclasses.replace(world.machine("x"), owner=named_alike)) is not None
    assert take(world.machine("here")) is None


@pytest.mark.parametrize("seed", range(examples(20, 400)))
def test_one_holder_at_a_time_and_no_lease_for_ever(world: World, seed: int) -> None:
    """Machines whose clocks are ten minutes apart, or stand still, take, renew, give back and die in any order."""
    world.rng.seed(seed)
    machines = [world.machine("a", OFF_S), world.machine("b", -OFF_S), world.machine("c", stopped=True)]
    held: dict[str, leases.Lease] = {}  # what each believes to hold
    renewed_s: dict[str, float] = {}
    looked_s: dict[str, float] = {}  # since when it has looked at what is there now without taking it
    token = 0
    for _ in range(120):
        runtime = world.rng.choice(machines)
        name, action = runtime.owner.host, world.rng.choice(["take", "take", "renew", "renew", "give back", "die"])
        fresh = [other for other in held if world.passed_s - renewed_s[other] < LENGTH_S]
        if action == "take" and name not in held:
            lease = take(runtime)
            if lease is None:
                waited_s = world.passed_s - looked_s.setdefault(name, world.passed_s)
                assert waited_s < LENGTH_S, f"{name} saw the same lease for {waited_s:.0f} s and did not get it"
            else:
                assert not fresh, f"{name} took the lease from {fresh}"
                assert lease.token > token
                token, held[name], renewed_s[name] = lease.token, lease, world.passed_s
                looked_s = {}
        elif action == "renew" and name in held:
            try:
                held[name] = leases.renew(runtime, held[name])
                renewed_s[name], looked_s = world.passed_s, {}
                assert held[name].token == token, f"{name} was overtaken and renewed its lease"
            except leases.LeaseLost:
                assert held.pop(name).token < token
        elif action == "give back" and name in held:
            lease = held.pop(name)
            leases.release(runtime, lease)
            looked_s = {} if lease.token == token else looked_s
        elif action == "die":
            held.pop(name, None)
            machines[machines.index(runtime)] = dataclasses.replace(runtime, _shared={})
            looked_s.pop(name, None)
        world.passed_s += world.rng.choice([0, 0, 5, 20, 40])
