"""The processes of a torture run: started, killed, stopped for a while, and asked to end.

They are forked from a process that only imports: engines start their threads with first use.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable

from support.owners import Candidates
from torture.checks import check
from torture.roles import maintain, read, write
from torture.world import LEASE_S, World

HANG_S_MAX = 150
WRITER, CHECK = "writer", "check"


class Harness:
    def __init__(self, world: World, seed: int, writers: int) -> None:
        self.world, self.rng = world, random.Random(seed)
        self._work: dict[str, Callable[[], None]] = {
            "maintain": lambda: maintain(world),
            "maintain too": lambda: maintain(world),
            "read": lambda: read(world),
        }
        for writer in range(writers):
            self._work[f"{WRITER} {writer}"] = lambda own=(2 * writer, 2 * writer + 1): write(world, own)
        self._alive: dict[str, int] = {}
        self._asleep: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        self.before_work: Callable[[], None] = lambda: None

    def start(self, name: str) -> None:
        self._alive[name] = self._fork(name, self._work[name])

    def start_all(self) -> None:
        for name in self._work:
            if name not in self._alive:
                self.start(name)

    def call(self, work: Callable[[], None], name: str = CHECK) -> None:
        """Do something in a child, and wait for it."""
        self._alive[name] = self._fork(name, work)
        self._wait(name)

    def _fork(self, name: str, work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # nobody outlives the harness
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            output = os.open(self.world.root / "output", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
            os.dup2(output, 2)
            if name != CHECK:
                self.before_work()
            work()
            code = 0
        except BaseException:
            self.world.surprise(name)
        finally:
            sys.stdout.flush()
            os._exit(code)

    # -- what troubles do

    def kill_or_stop_one(self) -> None:
        """Whoever chance picks. Those who are killed, or ended by themselves, are started again."""
        self._wake()
        for name in [name for name in self._alive if self._ended(name)]:
            self.start(name)
        name = self.rng.choice(list(self._alive))
        if self.rng.random() < 0.75:
            self.kill(name)
            self.start(name)
        elif name not in self._asleep:
            os.kill(self._alive[name], signal.SIGSTOP)
            self._asleep[name] = time.monotonic() + self.rng.random() * 2.5 * LEASE_S
            self.counts[f"stopped {name.split()[0]}"] += 1

    def kill(self, name: str) -> None:
        os.kill(self._alive[name], signal.SIGKILL)
        os.waitpid(self._alive.pop(name), 0)
        self._asleep.pop(name, None)
        self.counts[f"killed {name.split()[0]}"] += 1

    # -- between the rounds

    def rest(self) -> None:
        """Writers end what they do."""
        self.world.stop_writers.touch()
        for name in [name for name in self._alive if name.startswith(WRITER)]:
            self._wait(name)
        self.world.stop_writers.unlink()

    def check(self, candidates: Candidates) -> None:
        candidates.catch_up()
        answer = self.world.root / "answer.pickle"
        answer.unlink(missing_ok=True)
        self.call(lambda: check(self.world, candidates, answer))
        if answer.exists():
            bad, candidates.states = pickle.loads(answer.read_bytes())
            for what in bad:
                self.world.violation(what)

    def finish(self) -> None:
        self.world.end.touch()
        for name in list(self._alive):
            self._wait(name)

    def _wake(self, name: str | None = None) -> None:
        for asleep, until in list(self._asleep.items()):
            if time.monotonic() > until or asleep == name:
                os.kill(self._alive[asleep], signal.SIGCONT)
                del self._asleep[asleep]

    def _ended(self, name: str) -> bool:
        if os.waitpid(self._alive[name], os.WNOHANG)[0] == 0:
            return False
        del self._alive[name]
        self._asleep.pop(name, None)
        return True

    def _wait(self, name: str) -> None:
        until = time.monotonic() + HANG_S_MAX
        self._wake(name)
        while not self._ended(name):
            self._wake()
            time.sleep(0.02)
            if time.monotonic() > until:
                self.world.violation(f"{name} hangs")
                self.kill(name)
                return
