"""Of many who write to one log without a lock, every one comes to it: told by the names in commits, simulated with
requests that take their time.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import pytest

from lithify.delta.fair_order import FIRST_S, FairOrder, before
from support.effort import SOAK

WAY_S = 0.01  # to the server; as long as the way back
LATENCIES: dict[str, Callable[[random.Random], float]] = {
    "in step": lambda _: WAY_S,
    "uneven": lambda rng: WAY_S * rng.uniform(0.7, 1.5),
    "sometimes very late": lambda rng: WAY_S * (rng.uniform(0.8, 1.3) if rng.random() < 0.98 else rng.uniform(3, 20)),
}


class TestOrder:
    def test_who_came_longest_ago_is_next(self) -> None:
        assert [before(name, "abc") for name in "abc"] == [0, 1, 2]

    def test_one_that_never_came_waits_for_nobody(self) -> None:
        assert before("new", "abcabc") == 0

    def test_who_let_a_turn_pass_is_not_waited_for(self) -> None:
        assert before("a", "cbaba") == 1, "only b: c has not come since a did, twice"

    def test_those_in_nobodys_way_do_not_count(self) -> None:
        assert before("a", ["", "b", "", "", "a", ""]) == 1

    def test_alone(self) -> None:
        assert before("a", "aaa") == before("a", "") == 0


class TestTurns:
    def order(self, *names: str, now_s: float = 0.0) -> FairOrder:
        order = FairOrder("us")
        for name in names:
            order.committed(name, now_s)
        order.looked(True, FIRST_S, now_s)
        return order

    def test_a_log_with_one_writer_is_not_contended(self) -> None:
        order = self.order("", "", "us")
        assert not order.is_contended(0.0)
        assert order.pause_s(0.0) is None

    def test_it_is_while_others_are_met_and_some_time_after(self) -> None:
        for meet in (lambda order: order.lost(5.0), lambda order: order.committed("other", 5.0)):
            order = self.order()
            assert not order.is_contended(5.0)
            meet(order)
            assert order.is_contended(5.9)
            assert not order.is_contended(6.1)

    def test_who_lost_once_tries_again_at_once(self) -> None:
        order = self.order()
        order.committed("", 1.0)
        order.lost(1.0)
        assert order.pause_s(1.0) is None

    def test_who_lost_again_looks_when_its_last_look_is_old(self) -> None:
        order = self.order()
        order.lost(1.0)
        order.lost(1.0 + 2 * order.turn_s)
        assert order.pause_s(1.0 + 2 * order.turn_s) == 0.0

    def test_whoever_is_before_us_has_its_time(self) -> None:
        order = self.order("a", "b", "us")
        assert order.before_us == 2
        assert order.pause_s(1.9 * order.turn_s) is not None
        assert order.pause_s(2 * order.turn_s) is None

    def test_when_those_before_us_have_come_it_is_our_turn(self) -> None:
        order = self.order("a", "us")
        assert order.pause_s(0.01) is not None
        order.committed("a", 0.02)
        order.looked(False, FIRST_S, 0.02)
        assert order.pause_s(0.02) is None

    def test_one_that_has_not_looked_for_long_looks_first(self) -> None:
        assert self.order("us", "a").pause_s(0.9) == 0.0


@dataclass
class Server:
    """A log that takes a commit if nobody has its version, and everything in the order in which it arrives."""

    seed: int
    latency: Callable[[random.Random], float]

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.names = list[str]()
        self.by = list[int]()
        self.requests = 0
        self.now_s = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()

    def start(self, program: Generator[Any, Any, None]) -> None:
        self._go_on(program, None)

    def run(self, until_s: float) -> None:
        while self._due and self._due[0][0] < until_s:
            self.now_s, _, do = heapq.heappop(self._due)
            do()

    def _go_on(self, program: Generator[Any, Any, None], answer: Any) -> None:
        asked = program.send(answer)
        if isinstance(asked, float):
            return self._at(asked, lambda: self._go_on(program, None))
        self.requests += 1
        there_s, back_s = self.latency(self.rng), self.latency(self.rng)

        def arrives() -> None:
            done = asked()
            self._at(back_s, lambda: self._go_on(program, done))

        return self._at(there_s, arrives)

    def _at(self, after_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now_s + after_s, next(self._number), do))

    def put(self, version: int, name: str, writer: int) -> bool:
        won = len(self.names) == version
        if won:
            self.names.append(name)
            self.by.append(writer)
        return won


def writer(server: Server, number: int, rests_s: Callable[[random.Random], float]) -> Generator[Any, Any, None]:
    """As `turns` and `commit` do it: a number yielded is a time to wait, a function a request."""
    order, known = FairOrder(f"writer {number}"), 0

    def learn(names: list[str]) -> None:
        nonlocal known
        known += len(names)
        for name in names:
            order.committed(name, server.now_s)

    def look(count: int, once: bool) -> Generator[Any, Any, None]:
        before, at_head = known, False
        while not at_head:
            asked_s, at = server.now_s, known
            found = yield lambda at=at, count=count: server.names[at : at + count]
            took_s = server.now_s - asked_s
            learn(found)
            at_head, count = len(found) < count, max(1, (known - before) // 2)
            if once:
                break
        order.looked(at_head, took_s, server.now_s)

    while True:
        yield rests_s(server.rng)
        yield lambda: None  # the rows
        while True:
            while order.is_contended(server.now_s) and (pause_s := order.pause_s(server.now_s)) is not None:
                yield float(pause_s)
                yield from look(max(1, order.before_us), order.is_near(server.now_s))
            name = order.us if order.is_contended(server.now_s) else ""
            asked_s, at = server.now_s, known
            if (yield lambda at=at, name=name: server.put(at, name, number)):
                order.swapped(server.now_s - asked_s)
                learn([name])
                break
            learn((yield lambda at=at: server.names[at : at + 1]))
            order.lost(server.now_s)


def simulated(seed: int, latency: str, count: int, *, rests_s: Callable[[random.Random], float], s: float) -> Server:
    server = Server(seed, LATENCIES[latency])
    for number in range(count):
        server.start(writer(server, number, rests_s))
    server.run(s)
    return server


def longest_wait(by: list[int], writers: int) -> int:
    """How many commits went by between two of one writer, at most."""
    last, longest = dict.fromkeys(range(writers), -1), 0
    for version, number in enumerate(by):
        longest = max(longest, version - last[number])
        last[number] = version
    return max(longest, *(len(by) - version for version in last.values()))


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("writers", [2, 3, 8, 20])
def test_nobody_starves(latency: str, writers: int) -> None:
    for seed in range(40 if SOAK else 2):
        server = simulated(seed, latency, writers, rests_s=lambda _: 0.0, s=30.0)
        counts = [server.by.count(number) for number in range(writers)]
        told = f"seed {seed}: {counts}"
        assert min(counts) > 0.7 * len(server.by) / writers, told
        assert longest_wait(server.by, writers) < 100 + 5 * writers, told


@pytest.mark.parametrize("latency", LATENCIES)
def test_many_commit_about_as_often_as_one(latency: str) -> None:
    for seed in range(2):
        one = simulated(seed, latency, 1, rests_s=lambda _: 0.0, s=30.0)
        many = simulated(seed, latency, 8, rests_s=lambda _: 0.0, s=30.0)
        assert len(many.by) > 0.9 * len(one.by), f"seed {seed}"


def test_one_writer_needs_two_requests_and_never_waits() -> None:
    server = simulated(1, "in step", 1, rests_s=lambda _: 0.0, s=30.0)
    assert len(server.by) == pytest.approx(30.0 / (4 * WAY_S), abs=1)
    assert server.requests == pytest.approx(2 * len(server.by), abs=2)
    assert set(server.names) == {""}


def test_those_who_write_now_and_then_come_to_it_beside_one_that_always_does() -> None:
    for seed in range(2):
        server = Server(seed, LATENCIES["uneven"])
        server.start(writer(server, 0, lambda _: 0.0))
        for number in range(1, 8):
            server.start(writer(server, number, lambda rng: rng.expovariate(1.0)))
        server.run(60.0)
        counts = [server.by.count(number) for number in range(8)]
        assert min(counts) > 25, f"seed {seed}: {counts}"
        assert counts[0] > 3 * max(counts[1:]), f"seed {seed}: {counts}"
