"""Spark in a supervised child process: it does the work, and whatever happens to it is only an error here."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from lithify.compute.processes import members
from lithify.compute.worker import DEATHS_MAX, REST_S, WorkerCompute, WorkerOptions
from lithify.errors import ComputeFailed, Corruption, InvalidRequest, OutOfResources, Unavailable
from lithify.settings import Settings, memory_bytes
from lithify.spark.worker import TASK_BYTES_MIN, budget
from support import worker_tasks as work
from support.waiting import eventually, session_is_gone

TESTS = Path(__file__).parents[1]
MIB, GIB = 2**20, 2**30


def options(**changes: Any) -> WorkerOptions:
    """About 600 MiB for each of two tasks."""
    given = {"master": "local[2]", "memory_bytes": 2560 * MIB, "python_path": (str(TESTS),)}
    return WorkerOptions(**{**given, "modules": ("lithify.", "support."), **changes})


def scripted(folder: Path, script: str) -> tuple[Callable[[Any], Any], WorkerOptions]:
    """A function whose module runs `script` when the worker imports it: trouble that needs no JVM."""
    (folder / "trouble.py").write_text(f"import os, sys, time, pathlib\nhere = pathlib.Path({str(folder)!r})\n{script}")

    def function(task: Any) -> Any:
        raise AssertionError("the worker never comes that far")

    function.__module__, function.__qualname__ = "trouble", "function"
    return function, options(python_path=(str(folder),), modules=("trouble",))


HANG = "(here / 'begun').touch()\ntime.sleep(600)"


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerCompute]:
    compute = WorkerCompute(options())
    yield compute
    compute.close()


@pytest.fixture
def own_worker() -> Iterator[Callable[..., WorkerCompute]]:
    made: list[WorkerCompute] = []

    def make(*arguments: Any, **named: Any) -> WorkerCompute:
        made.append(WorkerCompute(*arguments, **named))
        return made[-1]

    yield make
    for compute in made:
        compute.close()


def in_flight(folder: Path, compute: WorkerCompute) -> int:
    """The worker's process id, as soon as its order runs."""
    eventually(lambda: any(folder.glob("here-*")) or (folder / "begun").exists())
    pid = compute.status().pid
    assert pid is not None
    return pid


@pytest.mark.spark
class TestOrders:
    def test_results_come_in_the_order_of_the_tasks(self, worker: WorkerCompute) -> None:
        assert worker.run(work.double, list(range(9))) == [2 * n for n in range(9)]

    def test_no_tasks_need_no_worker(self) -> None:
        compute = WorkerCompute(options())

        assert compute.run(work.double, []) == []
        assert compute.status().pid is None

    def test_the_worker_stays_warm(self, worker: WorkerCompute) -> None:
        assert worker.run_on_driver(work.worker_pid, 0) == worker.run_on_driver(work.worker_pid, 0)

    def test_work_beside_the_driver_gets_the_session(self, worker: WorkerCompute) -> None:
        assert worker.run_on_driver(work.count_rows, 1000) == 1000

    def test_what_a_task_prints_does_not_disturb(self, worker: WorkerCompute) -> None:
        assert worker.run(work.noisy, [1, 2, 3]) == [1, 2, 3]

    def test_two_orders_run_at_once(self, worker: WorkerCompute, tmp_path: Path) -> None:
        with ThreadPoolExecutor(2) as threads:
            orders = [threads.submit(worker.run, work.meet, [str(tmp_path)]) for _ in range(2)]
            eventually(lambda: len(list(tmp_path.glob("here-*"))) == 2)
            assert len(worker.status().orders) == 2
            (tmp_path / "go").touch()

            assert len({order.result()[0] for order in orders}) == 2

    def test_progress_is_told_while_tasks_run(self, worker: WorkerCompute, tmp_path: Path) -> None:
        told: list[tuple[int, int]] = []

        def on_progress(done: int, of: int) -> None:
            told.append((done, of))
            if done == 1:
                (tmp_path / "go").touch()

        worker.run(work.meet_unless_first, [(str(tmp_path), n) for n in range(2)], on_progress)

        assert (1, 2) in told

    def test_memory_in_use_is_known(self, worker: WorkerCompute) -> None:
        worker.run(work.double, [1])

        assert eventually(lambda: worker.status().rss_bytes) > 100 * MIB


@pytest.mark.spark
class TestErrors:
    def test_an_error_of_ours_arrives_as_itself(self, worker: WorkerCompute) -> None:
        with pytest.raises(Corruption, match=r"a\.parquet is damaged: restore it") as caught:
            worker.run(work.corrupt, ["a.parquet"])

        assert caught.value.details == {"path": "a.parquet"}

    def test_tasks_that_have_not_begun_are_left_out_after_an_error(self, worker: WorkerCompute, tmp_path: Path) -> None:
        with pytest.raises(Corruption, match="the first one"):
            worker.run(work.fail_first, [(str(tmp_path), n) for n in range(16)])

        assert (tmp_path / "ran-0").exists()
        assert not (tmp_path / "ran-15").exists()

    def test_a_missing_file_is_permanent(self, worker: WorkerCompute, tmp_path: Path) -> None:
        with pytest.raises(Unavailable, match=r"a file is missing.*nothing-here"):
            worker.run(work.open_missing, [str(tmp_path / "nothing-here")])

    def test_a_query_that_spark_refuses_is_permanent(self, worker: WorkerCompute) -> None:
        with pytest.raises(ComputeFailed, match="nowhere") as caught:
            worker.run_on_driver(work.unknown_column, 0)

        assert caught.value.details == {"reason": "Spark refused the query"}

    @pytest.mark.parametrize(("function", "task"), [(work.surprise, "odd"), (work.unpicklable, 0)])
    def test_what_has_no_rule_is_unknown(self, worker: WorkerCompute, function: Any, task: Any) -> None:
        with pytest.raises(ComputeFailed, match="a task failed") as caught:
            worker.run(function, [task])

        assert type(caught.value) is ComputeFailed
        assert caught.value.details == {"unknown": True}

    def test_a_function_from_elsewhere_is_refused(self, worker: WorkerCompute) -> None:
        with pytest.raises(InvalidRequest, match="posix:getpid may not run"):
            worker.run(os.getpid, [0])  # type: ignore[arg-type]

    def test_only_functions_of_lithify_run_unless_told_otherwise(
        self, own_worker: Callable[..., WorkerCompute]
    ) -> None:
        with pytest.raises(InvalidRequest, match=r"support\.worker_tasks:double may not run"):
            own_worker(options(modules=WorkerOptions().modules)).run(work.double, [1])

    def test_spark_that_cannot_start_is_a_clear_error(self, own_worker: Callable[..., WorkerCompute]) -> None:
        with pytest.raises(Unavailable, match="Spark did not start on Java"):
            own_worker(options(driver_memory="1m")).run(work.double, [1])


@pytest.mark.spark
class TestMemory:
    def test_a_task_that_is_too_large_fails_and_its_halves_succeed(self, worker: WorkerCompute) -> None:
        whole = 600 * MIB
        with pytest.raises(OutOfResources, match="ran out of memory"):
            worker.run(work.allocate, [whole])

        assert worker.run(work.allocate, [whole // 2, whole // 2]) == [whole // 2, whole // 2]

    def test_mapped_files_are_not_counted(self, worker: WorkerCompute, tmp_path: Path) -> None:
        file = tmp_path / "large"
        file.touch()
        os.truncate(file, 4 * GIB)

        assert worker.run(work.map_file, [str(file)]) == [4 * GIB]

    def test_a_python_worker_that_crashes_is_out_of_resources(self, worker: WorkerCompute) -> None:
        with pytest.raises(OutOfResources, match="a Python worker of Spark died"):
            worker.run(work.crash, [0])

        assert worker.run(work.double, [1]) == [2]


@pytest.mark.spark
class TestTrouble:
    """On the shared worker, which each of these makes start something anew."""

    @pytest.mark.parametrize(
        ("function", "task", "message"),
        [
            (work.kill_jvm, 0, r"Spark's JVM died \(exit 137"),
            (work.fill_heap, 200_000, r"Spark's JVM ran out of memory \(\d+m heap\)"),
        ],
        ids=["killed", "out of memory"],
    )
    def test_a_dead_jvm_is_replaced(self, worker: WorkerCompute, function: Any, task: int, message: str) -> None:
        pid = worker.run_on_driver(work.worker_pid, 0)
        with pytest.raises(OutOfResources, match=message):
            worker.run_on_driver(function, task)

        assert worker.run(work.double, [1]) == [2]
        assert worker.run_on_driver(work.worker_pid, 0) == pid

    def test_a_killed_worker_fails_its_orders_and_is_replaced(self, worker: WorkerCompute, tmp_path: Path) -> None:
        with ThreadPoolExecutor(2) as threads:
            orders = [threads.submit(worker.run, work.meet, [str(tmp_path)]) for _ in range(2)]
            eventually(lambda: len(list(tmp_path.glob("here-*"))) == 2)
            pid = worker.status().pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            for order in orders:
                with pytest.raises(OutOfResources, match=r"the Spark worker died \(exit 137.*worker_tasks:meet"):
                    order.result()

        assert session_is_gone(pid)
        assert worker.run(work.double, [1]) == [2]
        assert worker.status().pid not in (None, pid)
        assert worker.status().deaths_in_a_row == 0


@pytest.mark.spark
class TestEnd:
    def test_an_idle_worker_is_given_back_with_its_jvm(
        self, own_worker: Callable[..., WorkerCompute], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        compute = own_worker(options(idle_s=0.5))
        assert compute.run(work.double, [1]) == [2]
        pid = compute.status().pid
        assert pid is not None

        eventually(lambda: compute.status().pid is None)

        assert session_is_gone(pid)
        assert list(tmp_path.iterdir()) == []
        assert compute.status().deaths_in_a_row == 0
        with pytest.raises(InvalidRequest):
            compute.run(os.getpid, [0])  # type: ignore[arg-type]
        assert compute.status().pid not in (None, pid)

    def test_closing_leaves_nothing_behind(self, tmp_path: Path) -> None:
        function, trouble = scripted(tmp_path, HANG)
        compute = WorkerCompute(trouble)
        with ThreadPoolExecutor(1) as threads:
            order = threads.submit(compute.run, function, [0])
            pid = in_flight(tmp_path, compute)
            compute.close()

            with pytest.raises(ComputeFailed, match="cancelled: the lake was closed"):
                order.result()
        assert session_is_gone(pid)
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        with pytest.raises(InvalidRequest, match="closed"):
            compute.run(function, [0])

    def test_it_dies_with_its_parent(self, tmp_path: Path) -> None:
        scratch = str(tmp_path / "scratch")
        script = (
            f"import sys, tempfile\nsys.path.insert(0, {str(TESTS)!r})\ntempfile.tempdir = {scratch!r}\n"
            "from support import worker_tasks\n"
            "from lithify.compute.worker import WorkerCompute, WorkerOptions\n"
            "compute = WorkerCompute(WorkerOptions(master='local[2]', modules=('support.',), "
            f"python_path=({str(TESTS)!r},)))\n"
            f"compute.run(worker_tasks.meet, [{str(tmp_path)!r}], lambda done, of: "
            "print(compute.status().pid, flush=True))\n"
        )
        (tmp_path / "scratch").mkdir()
        parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        try:
            pid = int(parent.stdout.readline())
            eventually(lambda: any(tmp_path.glob("here-*")))
            # The worker, its JVM, Spark's Python daemon and the task.
            assert len(members(pid)) >= 4
        finally:
            parent.kill()
            parent.wait()
            parent.stdout.close()

        assert session_is_gone(pid)
        eventually(lambda: not any((tmp_path / "scratch").iterdir()))


@pytest.mark.spark
def test_heavy_work_of_a_lake_runs_on_the_worker(tmp_path: Path) -> None:
    script = (
        "import sys, pyarrow as pa\nfrom lithify import Lake, Settings\n"
        "settings = Settings(local_job_bytes_max=0, spark_master='local[2]', worker_memory='2g')\n"
        f"with Lake({str(tmp_path / 'lake')!r}, settings=settings) as lake:\n"
        "    table = lake.create_table('s.t', pa.schema([('id', pa.int64()), ('v', pa.string())]), key='id')\n"
        "    for word in ('first', 'second'):\n"
        "        table.upsert([{'id': n, 'v': word} for n in range(100)])\n"
        "        engine = table.fold().engine\n"
        "    worker = lake._runtime.compute.status().pid\n"
        "    print(engine, table.get(7), 'pyspark' in sys.modules, worker)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=280, check=False)

    engine, *answer, pid = done.stdout.split()
    assert (engine, " ".join(answer)) == ("spark", "{'id': 7, 'v': 'second'} False"), done.stderr
    assert session_is_gone(int(pid))


class TestWithoutSpark:
    """Trouble before Spark is started needs no JVM."""

    def test_cancelled_orders_say_so(self, own_worker: Callable[..., WorkerCompute], tmp_path: Path) -> None:
        function, trouble = scripted(tmp_path, HANG)
        compute = own_worker(trouble)
        with ThreadPoolExecutor(1) as threads:
            order = threads.submit(compute.run, function, [0])
            pid = in_flight(tmp_path, compute)
            compute.cancel_all("the cycle took too long")

            with pytest.raises(ComputeFailed, match="cancelled: the cycle took too long") as caught:
                order.result()
        assert caught.value.details == {"cancelled": True}
        assert session_is_gone(pid)
        assert compute.status().deaths_in_a_row == 0

    def test_ctrl_c_ends_the_worker_and_goes_on(self, own_worker: Callable[..., WorkerCompute], tmp_path: Path) -> None:
        function, trouble = scripted(tmp_path, HANG)
        compute = own_worker(trouble)
        pids: list[int] = []

        def interrupt() -> None:
            pids.append(in_flight(tmp_path, compute))
            os.kill(os.getpid(), signal.SIGINT)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            interrupter = threading.Thread(target=interrupt)
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                compute.run(function, [0])
            interrupter.join()
        finally:
            signal.signal(signal.SIGINT, before)

        assert session_is_gone(pids[0])
        assert compute.status().pid is None

    def test_an_error_while_telling_progress_cancels(
        self, own_worker: Callable[..., WorkerCompute], tmp_path: Path
    ) -> None:
        function, trouble = scripted(tmp_path, HANG)
        compute = own_worker(trouble)

        def refuse(done: int, of: int) -> None:
            raise Corruption("no more of this")

        with pytest.raises(Corruption, match="no more"):
            compute.run(function, [0], refuse)
        assert compute.status().pid is None

    def test_a_silent_worker_is_killed(self, own_worker: Callable[..., WorkerCompute], tmp_path: Path) -> None:
        function, _ = scripted(tmp_path, HANG)
        compute = own_worker(options(python_path=(str(tmp_path),), modules=("trouble",)))
        with ThreadPoolExecutor(1) as threads:
            order = threads.submit(compute.run, function, [0])
            pid = in_flight(tmp_path, compute)
            compute._options = dataclasses.replace(compute._options, silence_s_max=1)
            os.kill(pid, signal.SIGSTOP)

            with pytest.raises(OutOfResources, match=r"the Spark worker died \(it was silent for \d+ s\)"):
                order.result()
        assert session_is_gone(pid)

    def test_a_worker_that_talks_nonsense_is_killed(
        self, own_worker: Callable[..., WorkerCompute], tmp_path: Path
    ) -> None:
        script = "for pipe in range(3, 9):\n    try: os.write(pipe, b'nonsense\\n')\n    except OSError: pass\n"
        function, trouble = scripted(tmp_path, script + HANG)

        with pytest.raises(OutOfResources, match="it said what is no answer: b'nonsense'"):
            own_worker(trouble).run(function, [0])

    def test_a_worker_that_ends_for_no_known_reason_is_quoted(
        self, own_worker: Callable[..., WorkerCompute], tmp_path: Path
    ) -> None:
        function, trouble = scripted(tmp_path, "print('out of luck', flush=True)\nos._exit(7)")

        with pytest.raises(ComputeFailed, match=r"died \(exit 7\).*Its last words: out of luck") as caught:
            own_worker(trouble).run(function, [0])

        assert caught.value.details == {"unknown": True, "exit": 7}

    def test_a_worker_that_keeps_dying_is_left_alone_for_a_while(
        self, own_worker: Callable[..., WorkerCompute], tmp_path: Path
    ) -> None:
        function, trouble = scripted(tmp_path, "os._exit(137)")
        now_s = 0.0
        compute = own_worker(trouble, clock=lambda: now_s)
        for _ in range(DEATHS_MAX):
            with pytest.raises(OutOfResources, match="exit 137"):
                compute.run(function, [0])

        with pytest.raises(ComputeFailed, match=f"died {DEATHS_MAX} times in a row") as caught:
            compute.run(function, [0])
        assert not isinstance(caught.value, OutOfResources)

        now_s = REST_S + 1
        with pytest.raises(OutOfResources, match="exit 137"):
            compute.run(function, [0])

    def test_the_parent_never_loads_pyspark(self) -> None:
        script = "import sys, lithify.compute.worker\nassert not {'pyspark', 'py4j', 'pyarrow'} & set(sys.modules)"

        subprocess.run([sys.executable, "-c", script], check=True)


class TestBudget:
    def test_the_parts_stay_within_the_whole(self) -> None:
        share = budget(8 * GIB, 4)

        assert share.heap == f"{8 * 1024 // 3}m"
        assert share.cores == 4
        assert share.task_bytes_max is not None
        assert memory_bytes(share.heap) + 4 * share.task_bytes_max < 8 * GIB

    def test_a_heap_that_was_asked_for_counts(self) -> None:
        assert budget(8 * GIB, 4, "1g").heap == "1024m"
        assert (budget(8 * GIB, 4, "1g").task_bytes_max or 0) > (budget(8 * GIB, 4).task_bytes_max or 0)

    def test_little_memory_means_fewer_tasks_at_once_not_smaller_ones(self) -> None:
        share = budget(2 * GIB, 16)

        assert share.cores == 1
        assert (share.task_bytes_max or 0) >= TASK_BYTES_MIN

    @pytest.mark.parametrize("text", ["512m", "1023m", "much", "-4g"])
    def test_too_little_or_nonsense_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidRequest, match="worker_memory"):
            Settings(worker_memory=text)
