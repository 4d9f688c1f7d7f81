"""Writers, maintenance, vacuum and readers on one lake, while things go wrong; an oracle outside of all of them.

    python tests/torture/loop.py FOLDER --trouble kills --seed 1 --seconds 600

Every round lets trouble happen for some seconds, lets the writers end what they do, and looks at everything
(`checks.py`) while maintenance goes on. What is wrong is printed as VIOLATION and makes the exit code 1.

    kills      any process is killed, or stopped for longer than its lease
    full-disk  the lake lies on a small disk of its own that a third process fills and frees (`unshare --mount`)
    clocks     every process has another clock, up to a year off, and is killed now and then (shifted.c is preloaded)
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow.dataset  # noqa: F401 - what Arrow imports with its first join

from lithify import Lake
from support.owners import KINDS, Candidates
from torture.harness import Harness
from torture.world import SETTINGS, World

DAY_S = 86_400
CLOCKS_S = (0, 0, 0, 60, -60, DAY_S, -DAY_S, 9 * DAY_S, -9 * DAY_S, 40 * DAY_S, -400 * DAY_S, 365 * DAY_S)
DISK_MB = 64


def kills(harness: Harness, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(harness.rng.random() * 0.8)
        harness.kill_or_stop_one()


def full_disk(harness: Harness, seconds: float) -> None:
    """To the last byte, or almost; for a moment, or for a while."""
    until, rng, ballast = time.monotonic() + seconds, harness.rng, harness.world.lake.parent / "ballast"
    while time.monotonic() < until:
        time.sleep(rng.random())
        with open(ballast, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(rng.choice([4096, 65536])))
            except OSError:
                harness.counts["filled"] += 1
            if rng.random() < 0.5:
                file.truncate(max(0, file.tell() - rng.choice([4096, 8192, 20_000, 100_000])))
            time.sleep(rng.random() * 1.5)
        ballast.unlink()


def own_disk(harness: Harness) -> None:
    """A disk for the lake alone. It is gone with the mount namespace that this process must have been given."""
    disk = harness.world.lake.parent
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)], check=True)


def own_clocks(harness: Harness) -> None:
    """Chance of the child, not of the harness: forked children would all draw the same."""
    shift = ctypes.CDLL(None).shift_clock
    harness.before_work = lambda: shift(ctypes.c_long(CLOCKS_S[int.from_bytes(os.urandom(2)) % len(CLOCKS_S)]))


TROUBLES: dict[str, tuple[Callable[[Harness], None], Callable[[Harness, float], None]]] = {
    "kills": (lambda harness: None, kills),
    "full-disk": (own_disk, full_disk),
    "clocks": (own_clocks, kills),
}


def run(root: Path, trouble: str, seed: int, seconds: float, round_s: float, writers: int) -> int:
    world = World(root)
    world.prepare()
    os.environ["TMPDIR"] = str(root / "tmp")
    harness, candidates = Harness(world, seed, writers), Candidates(world.notes, 2 * writers)
    prepare, happen = TROUBLES[trouble]
    prepare(harness)

    def create() -> None:
        with Lake(world.lake, create=True, settings=SETTINGS) as lake:
            for kind in KINDS.values():
                kind.create(lake)

    harness.call(create)
    until, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < until and not (rounds and world.violations.exists()):
        rounds += 1
        harness.start_all()
        happen(harness, round_s)
        harness.rest()
        harness.check(candidates)
        if rounds % 10 == 0:
            print(f"round {rounds}: {candidates.counts}, {dict(harness.counts)}", flush=True)
    harness.finish()
    events = Counter(json.loads(line)["what"] for line in world.events.read_text().splitlines())
    told = {**candidates.counts, **harness.counts, **events}
    print(f"{trouble}, seed {seed}: {rounds} rounds, {told}", flush=True)
    return 1 if world.violations.exists() else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="made for the run; removed if nothing was wrong")
    parser.add_argument("--trouble", choices=list(TROUBLES), default="kills")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3)), help="of what goes wrong when")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--round", type=float, default=4, help="seconds between two checks")
    parser.add_argument("--writers", type=int, default=3)
    options = parser.parse_args()
    code = run(options.folder, options.trouble, options.seed, options.seconds, options.round, options.writers)
    if code == 0:
        shutil.rmtree(
            options.folder, ignore_errors=True
        )  # of a disk of its own only the mount point stays, until the end
    return code


if __name__ == "__main__":
    sys.exit(main())
