"""Every call that an operation makes to the operating system may fail, in Python, Arrow and the Rust libraries alike:
what was answered is there, what was refused is not, all that the logs name exists, others read the same rows, and the
operation can be done again (invariants 1, 2, 8, 9).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain
from random import Random

import pytest

from support import libc_faults
from support.effort import SEED, SOAK
from support.fault_runner import Runner
from support.folders import memory_folder
from support.libc_faults import Call, Fault
from support.operations import OPERATIONS

FAULTS_MAX = 5  # of each operation, unless soaked
# `LIBC_FAULTS=each_once`: every call once, which is a fiftieth of what a soak does.
EACH_ONCE = os.environ.get("LIBC_FAULTS", "") == "each_once"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(libc_faults.compiler() is None, reason="there is no C compiler to build the shim with"),
]


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with memory_folder() as folder:
        runner = Runner(libc_faults.build(folder), folder)
        yield runner
        runner.close()


def some(name: str, calls: list[Call], random: Random) -> list[Fault]:
    always = libc_faults.sample(calls, Random(name), FAULTS_MAX)[:1]
    return always + libc_faults.sample(calls, random, FAULTS_MAX - 1)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_survives_any_failing_call(name: str, runner: Runner) -> None:
    """Unless soaked, one fault that is always tried, some others in each run (SWEEP_SEED), and then more until one has
    made it fail.
    """
    calls, random = runner.calls(name), Random(f"{SEED} {name}")
    every = libc_faults.every(calls)
    chosen = every if SOAK else libc_faults.each_once(calls) if EACH_ONCE else some(name, calls, random)
    wrong, failed = [], 0
    for number, fault in enumerate(chain(chosen, random.sample(every, len(every)))):
        if number >= len(chosen) and failed:
            break
        verdict = runner.run(name, fault)
        failed += verdict.failed is not None
        if verdict.wrong is not None:
            wrong.append(f"{fault} ({verdict.failed}): {verdict.wrong}")
    assert not wrong, f"{len(wrong)} faults: " + "\n".join(wrong[:20])
    assert failed, "no call has failed: this test sees nothing"
