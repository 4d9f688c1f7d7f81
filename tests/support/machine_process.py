"""One of several machines on a lake in a bucket: a process with a host name and a clock of its own.

    python -m support.machine_process <what> <name> <address> <argument>

It tells what it does in lines on its standard output. What it was sent to do at a step of the engine it does not do: it
stops there, as a machine that hangs, until somebody lets it go on.
"""

from __future__ import annotations

import random
import socket
import sys
from pathlib import Path

from lithify import CommitUnknown, Lake, LithifyError, Settings
from lithify.jobs import leases
from support.bucket_steps import InterruptedBucket
from support.clocks import Clock, lake_with
from support.cycles import fall_asleep

SETTINGS = Settings(lease_s=1, lock_wait_s_max=1, commit_wait_s_max=20)
TABLE = "a.t"
LATER = Clock(2 * 3_600_000)  # so that a vacuum of one hour finds something


def told(*words: object) -> None:
    print(*words, flush=True)


def hanging(address: str, what: str, step: str) -> None:
    """`fold`, `vacuum` or `write`, and hang at a step of it."""
    store = InterruptedBucket()
    later = {"vacuum": LATER}.get(what, Clock())
    with lake_with(later, address, SETTINGS, store=store) as lake:  # type: ignore[arg-type]
        table = lake.table(TABLE)
        store.actions[step] = fall_asleep
        try:
            match what:
                case "fold":
                    table.fold()
                case "vacuum":
                    table.vacuum(1, dry_run=False)
                case _:
                    table.upsert([{"id": 1, "n": 100}, {"id": 50, "n": 50}])
            told("done", what)
        except LithifyError as error:
            told(type(error).__name__, error)


def reading(address: str) -> None:
    """Pin the first version, hang, and read it then."""
    with Lake(address, settings=SETTINGS) as lake, lake.table(TABLE).pin(as_of=1) as snapshot:
        fall_asleep()
        told("rows", lake.table(TABLE).to_arrow(as_of=snapshot).num_rows)


def leading(address: str) -> None:
    with Lake(address, settings=SETTINGS) as lake:
        ours, lease = leases.acquire(lake._runtime, "cycle", "theirs", SETTINGS.lease_s)
        assert ours
        with leases.RenewedLease(lake._runtime, lease) as renewed:
            fall_asleep()
            told("ours", renewed.still_ours())


def working(address: str, number: int, notes: Path) -> None:
    """Write, fold, vacuum and read until killed. Each write is noted before it begins and when it is acknowledged."""
    rng, n = random.Random(), len(notes.read_text().splitlines()) if notes.exists() else 0
    with lake_with(LATER, address, SETTINGS) as lake, open(notes, "a") as notebook:  # type: ignore[arg-type]
        table = lake.table(TABLE)
        while True:
            try:
                match rng.choices(["write", "fold", "vacuum", "pin"], [12, 3, 1, 2])[0]:
                    case "write":
                        n += 1
                        notebook.write(f"begun {n}\n")
                        notebook.flush()
                        table.upsert([{"id": number * 1_000_000 + n, "n": n}, {"id": number, "n": n}])
                        notebook.write(f"done {n}\n")
                        notebook.flush()
                    case "fold":
                        table.fold()
                    case "vacuum":
                        table.vacuum(1, dry_run=False)
                    case _:
                        with table.pin() as snapshot:
                            first = table.to_arrow(as_of=snapshot).num_rows
                            assert table.to_arrow(as_of=snapshot).num_rows == first
            except CommitUnknown as error:
                told("unknown", error)
            except LithifyError as error:
                told(type(error).__name__, error)


if __name__ == "__main__":
    _, what, name, address, *more = sys.argv
    socket.gethostname = lambda: name
    match what:
        case "reading":
            reading(address)
        case "leading":
            leading(address)
        case "working":
            working(address, int(more[0]), Path(more[1]))
        case _:
            hanging(address, what, more[0])
