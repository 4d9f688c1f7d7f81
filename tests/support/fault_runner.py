"""The process that faults are tried in. It is started with the shim preloaded and imports everything once; every case
is a fork of it, which has threads and runtimes of its own, and another fork that looks at the lake with fresh eyes.

Orders come as pickles on stdin, answers go as pickles to stdout: see `Runner`, which the tests hold.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from support.libc_faults import Call, Fault, Shim, read_trace

T = TypeVar("T")

CASE_S_MAX = 120


@dataclass(frozen=True)
class Verdict:
    """What became of one case: what was answered, and what is wrong with that, if anything."""

    answer: str
    failed: str | None = None
    wrong: str | None = None


class Runner:
    """The tests' side."""

    def __init__(self, shim: Path, folder: Path) -> None:
        self.folder = folder
        (folder / "tmp").mkdir()
        environment = {**os.environ, "LD_PRELOAD": str(shim), "TMPDIR": str(folder / "tmp")}
        environment["PYTHONPATH"] = str(Path(__file__).parents[1])
        command = [sys.executable, "-m", "support.fault_runner", str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=Path(__file__).parents[1]
        )

    def calls(self, name: str) -> list[Call]:
        """What an undisturbed run of the operation calls."""
        return list(self._ask("calls", name))

    def run(self, name: str, fault: Fault) -> Verdict:
        found = self._ask("case", name, fault)
        assert isinstance(found, Verdict)
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0

    def _ask(self, *order: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        pickle.dump(order, stdin)
        stdin.flush()
        answer = pickle.load(stdout)
        if isinstance(answer, _Failure):
            raise AssertionError(answer.text)
        return answer


@dataclass(frozen=True)
class _Failure:
    text: str


class _Server:
    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self._wanted: dict[str, Any] = {}

    def calls(self, name: str) -> list[Call]:
        self._wanted[name] = _in_child(lambda: _make(self._folder, name))
        trace = self._folder / f"trace-{name}"
        _in_child(lambda: _record(self._folder, name, trace))
        return read_trace(trace)

    def case(self, name: str, fault: Fault) -> Verdict:
        self._number += 1
        case_folder = self._folder / f"case-{self._number}"
        try:
            answer, failed, here = _in_child(lambda: _disturbed(self._folder, name, case_folder, fault))
        except _Ended as ended:
            return Verdict("none", wrong=str(ended))
        if failed is None:
            shutil.rmtree(case_folder)
            return Verdict(answer[0].value)
        try:
            found = _in_child(lambda: _judged(name, case_folder, answer[0], self._wanted[name]))
        except _Ended as ended:
            return Verdict(answer[0].value, failed, f"answered {answer[1]}; {ended}")
        wrong = None
        if isinstance(here, str):
            wrong = f"it cannot be read where it was disturbed: {here}"
        elif here != found:
            wrong = "where it was disturbed, it looks otherwise"
        elif not answer[2]:
            wrong = "that is no error of Lithify"
        shutil.rmtree(case_folder)
        return Verdict(answer[0].value, failed, wrong and f"answered {answer[1]}; {wrong}")


class _Ended(Exception):
    """A child that did not come to its end."""


def _in_child(work: Callable[[], T]) -> T:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            try:
                answer: Any = work()
            except BaseException as error:
                answer = _Failure("".join(traceback.format_exception(error))[-3000:])
            with os.fdopen(writing, "wb") as out:
                pickle.dump(answer, out)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    data = bytearray()
    while select.select([reading], [], [], CASE_S_MAX)[0]:
        part = os.read(reading, 1 << 20)
        if not part:
            break
        data += part
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(reading)
    status = os.waitpid(pid, 0)[1]
    if status or not data:
        raise _Ended(f"the process ended with {os.waitstatus_to_exitcode(status)}")
    answer = pickle.loads(bytes(data))
    if isinstance(answer, _Failure):
        raise _Ended(answer.text)
    return answer  # type: ignore[no-any-return]


# -- what the children do; nothing of it may run in the server, whose forks would inherit its runtimes without threads


def _make(folder: Path, name: str) -> Any:
    from support.operations import expected, made, made_ready

    return expected(name, made_ready(name, made(name, folder / f"made-{name}"), folder / f"wanted-{name}"))


def _record(folder: Path, name: str, trace: Path) -> None:
    from support.operations import OPERATIONS, made_ready, opened

    case_folder = folder / f"recorded-{name}"
    with opened(name, made_ready(name, folder / f"made-{name}", case_folder)) as lake, Shim(case_folder).tracing(trace):
        OPERATIONS[name].run(lake)


def _disturbed(
    folder: Path, name: str, case_folder: Path, fault: Fault
) -> tuple[tuple[Any, str, bool], str | None, Any]:
    from lithify import LithifyError
    from support.operations import OPERATIONS, Answer, made_ready, opened, state

    logging.disable(logging.CRITICAL)
    with opened(name, made_ready(name, folder / f"made-{name}", case_folder)) as lake:
        tempfile.tempdir = str(case_folder)
        shim, error = Shim(case_folder), None
        with shim.failing(fault):
            try:
                OPERATIONS[name].run(lake)
            except BaseException as raised:
                error = raised
        ours = error is None or isinstance(error, LithifyError)
        text = repr(error) if ours else "".join(traceback.format_exception(error))[-2000:]
        answer = Answer.of(error), text, ours
        if shim.first_failed is None:
            return answer, None, None
        try:
            return answer, shim.first_failed, state(lake)
        except Exception as wrong:
            return answer, shim.first_failed, repr(wrong)


def _judged(name: str, case_folder: Path, answer: Any, wanted: Any) -> Any:
    from support.operations import judge

    logging.disable(logging.CRITICAL)
    return judge(name, case_folder / "lake", answer, wanted)


def serve(folder: Path) -> None:
    import datafusion  # noqa: F401
    import duckdb  # noqa: F401
    import pyarrow.acero
    import pyarrow.dataset  # noqa: F401

    import lithify.lake.adopt
    import lithify.lake.lake
    import lithify.spark.write  # noqa: F401
    import support.operations  # noqa: F401

    gc.collect()
    gc.freeze()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    server = _Server(folder)
    while True:
        try:
            what, *order = pickle.load(sys.stdin.buffer)
        except EOFError:
            os._exit(0)  # what libraries have to say at the end of a process is of no interest
        answer: Any
        try:
            answer = getattr(server, what)(*order)
        except Exception as error:
            answer = _Failure("".join(traceback.format_exception(error)))
        pickle.dump(answer, out)
        out.flush()


if __name__ == "__main__":
    # Pickles name classes by this module, whoever runs it.
    from support import fault_runner

    fault_runner.serve(Path(sys.argv[1]))
