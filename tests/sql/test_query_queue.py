"""Slots, the line for them, and cancelling."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from lithify.errors import Cancelled, Conflict, InvalidRequest, LimitExceeded
from lithify.sql.query_queue import Run, RunningQueries

LONG_S = 60.0


class Slow:
    """Queries that run until they are let go."""

    def __init__(self, queries: RunningQueries) -> None:
        self.queries = queries
        self._pool = ThreadPoolExecutor(16)
        self._go = threading.Event()

    def start(self, id: str, body: Callable[[Run], None] | None = None, owner: str | None = None) -> Future[str]:
        """Answers when the query is in the register."""

        def query() -> str:
            with self.queries.running("select 1", id, owner) as run:
                if body is not None:
                    body(run)
                self._go.wait(LONG_S)
                return id

        future = self._pool.submit(query)
        while not future.done() and id not in {running.id for running in self.queries.list()}:
            pass
        return future

    def state(self, id: str) -> str:
        return next(running.state for running in self.queries.list() if running.id == id)

    def drop_cached(self) -> None:
        self._go.set()

    def close(self) -> None:
        self.drop_cached()
        self._pool.shutdown()


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow(RunningQueries(2, LONG_S))
    yield slow
    slow.close()


def wait_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(LONG_S / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came to that")


def test_as_many_run_as_there_are_places(slow: Slow) -> None:
    futures = [slow.start(id) for id in "abc"]
    wait_for(lambda: [slow.state(id) for id in "abc"] == ["running", "running", "waiting"])
    slow.drop_cached()
    assert [future.result(LONG_S) for future in futures] == ["a", "b", "c"]


def test_who_waits_too_long_is_refused() -> None:
    slow = Slow(RunningQueries(1, 0.01))
    slow.start("a")
    with pytest.raises(LimitExceeded, match="query_wait_s_max") as caught:
        slow.start("b").result(LONG_S)
    slow.close()
    assert caught.value.details["limit"] == "queue"


def test_without_waiting_a_free_place_is_taken_at_once() -> None:
    queries = RunningQueries(1, 0)
    for _ in range(2):
        with queries.running("select 1") as run:
            assert run.state == "running"


def test_a_place_that_becomes_free_goes_to_the_first_in_line(slow: Slow) -> None:
    left = threading.Event()
    slow.start("a")
    slow.start("b", lambda run: (left.wait(LONG_S), run.cancel(), run.check()))  # type: ignore[arg-type, func-returns-value]
    slow.start("c")
    slow.start("d")
    left.set()
    wait_for(lambda: "b" not in {running.id for running in slow.queries.list()})
    wait_for(lambda: slow.state("c") == "running")
    assert slow.state("d") == "waiting"


def test_an_id_names_one_query_at_a_time(slow: Slow) -> None:
    slow.start("a")
    with pytest.raises(Conflict, match="query a is under way"):
        slow.start("a").result(LONG_S)
    slow.drop_cached()
    wait_for(lambda: not slow.queries.list())
    assert slow.start("a").result(LONG_S) == "a"


@pytest.mark.parametrize("id", ["", "x" * 129])
def test_an_id_has_a_sensible_length(slow: Slow, id: str) -> None:
    with pytest.raises(InvalidRequest, match="id of a query"), slow.queries.running("select 1", id):
        pass


def test_cancelling_ends_a_wait(slow: Slow) -> None:
    for id in "ab":
        slow.start(id)
    waiting = slow.start("c")
    assert slow.queries.cancel("c")
    with pytest.raises(Cancelled, match="query c was cancelled"):
        waiting.result(LONG_S)
    assert {running.id for running in slow.queries.list()} == {"a", "b"}


def test_cancelling_calls_what_stops_the_work(slow: Slow) -> None:
    def body(run: Run) -> None:
        stopped = threading.Event()
        with run.stop_with(stopped.set):
            assert stopped.wait(LONG_S)
        run.check()

    future = slow.start("a", body)
    assert slow.queries.cancel("a")
    with pytest.raises(Cancelled):
        future.result(LONG_S)


def test_a_query_that_was_cancelled_before_its_work_began_stops_at_once() -> None:
    run = Run("a", "select 1")
    run.cancel()
    stopped = threading.Event()
    with run.stop_with(stopped.set):
        assert stopped.is_set()


def test_cancelling_a_stranger_changes_nothing(slow: Slow) -> None:
    slow.start("a")
    assert not slow.queries.cancel("z")
    assert slow.state("a") == "running"


def test_no_place_is_lost_whatever_happens() -> None:
    queries = RunningQueries(2, LONG_S)
    outcomes: list[str] = []

    def query(number: int) -> None:
        try:
            with queries.running("select 1", f"q{number}") as run:
                if number % 3 == 0:
                    raise ValueError("a bug")
                if number % 3 == 1:
                    queries.cancel(run.id)
                    run.check()
            outcomes.append("ended")
        except (ValueError, Cancelled) as error:
            outcomes.append(type(error).__name__)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(query, number) for number in range(300)]:
            future.result(LONG_S)
    assert {outcome: outcomes.count(outcome) for outcome in set(outcomes)} == {
        "ended": 100,
        "ValueError": 100,
        "Cancelled": 100,
    }
    assert queries.list() == []
    with queries.running("select 1"), queries.running("select 1"):
        pass


class TestOwners:
    @pytest.fixture
    def slow(self) -> Iterator[Slow]:
        slow = Slow(RunningQueries(3, LONG_S, owner_max=2))
        yield slow
        slow.close()

    def test_one_owner_cannot_take_all_places(self, slow: Slow) -> None:
        for id in ("a1", "a2", "a3", "a4"):
            slow.start(id, owner="a")
        slow.start("b1", owner="b")
        states = {id: slow.state(id) for id in ("a1", "a2", "a3", "a4", "b1")}
        assert states == {"a1": "running", "a2": "running", "a3": "waiting", "a4": "waiting", "b1": "running"}

    def test_those_of_nobody_in_particular_have_no_share(self, slow: Slow) -> None:
        for id in ("1", "2", "3"):
            slow.start(id)
        assert [slow.state(id) for id in ("1", "2", "3")] == ["running"] * 3

    def test_a_place_goes_to_whoever_waits_longest_and_may_have_it(self, slow: Slow) -> None:
        go_on = threading.Event()
        slow.start("b1", lambda run: run.check() if go_on.wait(LONG_S) else None, owner="b")
        for id in ("a1", "a2", "a3"):
            slow.start(id, owner="a")
        slow.start("b2", owner="b")
        slow.start("b3", owner="b")
        assert [slow.state(id) for id in ("a3", "b2", "b3")] == ["waiting"] * 3
        slow.queries.cancel("b1")
        go_on.set()
        wait_for(lambda: slow.state("b2") == "running")
        assert [slow.state(id) for id in ("a3", "b3")] == ["waiting"] * 2

    def test_the_limit_is_named(self) -> None:
        queries = RunningQueries(2, 0, owner_max=1)
        with (
            queries.running("select 1", owner="a"),
            pytest.raises(LimitExceeded, match="token_queries_max") as caught,
            queries.running("select 1", owner="a"),
        ):
            pass
        assert caught.value.details["limit"] == "queue"
