"""What the processes of a torture run do: write, maintain, read. Each may die at any moment."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import duckdb

from lithify import CommitUnknown, Lake, LithifyError
from lithify.lake.maintenance import Maintenance
from support.clocks import Clock, lake_with
from support.owners import COUNTER, KEYED, KINDS, Notebook, make, perform, seeded
from torture.world import DAYS_AHEAD_MS, SETTINGS, World


def write(world: World, owners: Sequence[int]) -> None:
    with Lake(world.lake, settings=SETTINGS) as lake:
        threads = [threading.Thread(target=_write, args=(world, lake, owner)) for owner in owners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _write(world: World, lake: Lake, owner: int) -> None:
    rng, book = seeded(), Notebook(world.notes, owner)
    past = book.lines()
    n = max((line["write"]["n"] for line in past), default=0)
    appended = [line["write"]["n"] for line in past if line["write"]["kind"] == "append"][-40:]
    last = past[-1] if past and past[-1]["what"] in ("begun", "again") else None
    if last is not None and last["write"]["batch_id"] and rng.random() < 0.7:
        _end(world, lake, owner, book, "again", last["write"])
    while not world.stop_writers.exists():
        n += 1
        one = make(rng, n, appended)
        _end(world, lake, owner, book, "begun", one)
        if one["kind"] == "append":
            appended = [*appended[-39:], n]


def _end(world: World, lake: Lake, owner: int, book: Notebook, begin: str, one: dict[str, Any]) -> None:
    book.note(begin, one)
    try:
        commit = perform(lake, owner, one)
        book.note("acknowledged", one, seq=commit.seq, replayed=commit.replayed)
    except CommitUnknown as error:
        book.note("unknown", one, error=str(error)[:300])
    except LithifyError as error:
        book.note("refused", one, error=f"{type(error).__name__}: {error}"[:300])
    except Exception:
        book.note("unknown", one)
        world.surprise(f"owner {owner}")


def maintain(world: World) -> None:
    """Work that somebody asks for, and vacuums of a process that takes everything for three days older."""
    rng, ahead = seeded(), Clock(DAYS_AHEAD_MS)
    with Lake(world.lake, settings=SETTINGS) as lake, lake_with(ahead, world.lake, SETTINGS) as later:
        while not world.end.exists():
            name = rng.choice(list(KINDS))
            work: dict[str, Callable[[], Any]] = {
                "fold": lake.table(name).fold,
                "compact": lake.table(name).compact,
                "optimize": lambda name=name: lake.table(name).optimize(by=["o", "n"]),
                "index": lake.table(name).build_index,
                "cycle": lambda: Maintenance(lake).cycle.run(),
                "vacuum": lambda name=name: later.table(name).vacuum(1, dry_run=False),
            }
            what = rng.choice(list(work))
            try:
                work[what]()
                world.note("did", work=what, table=name)
            except LithifyError as error:
                world.note("maintenance refused", work=what, table=name, error=f"{type(error).__name__}: {error}"[:400])
            except Exception:
                world.surprise(f"{what} of {name}")
            time.sleep(rng.random() * 0.2)


def read(world: World) -> None:
    """No read may show part of a write, or go back behind an earlier one."""
    rng, counters, seqs = seeded(), Counter[tuple[str, int]](), Counter[str]()
    with Lake(world.lake, settings=SETTINGS) as lake:
        while not world.end.exists():
            name = rng.choice(KEYED)
            try:
                seqs[name] = _read(world, lake, name, counters, seqs[name], by_sql=rng.random() < 0.5)
                world.note("read", table=name)
            except LithifyError as error:
                world.note("read refused", table=name, error=f"{type(error).__name__}: {error}"[:400])
            except Exception:
                world.surprise(f"a read of {name}")
            time.sleep(rng.random() * 0.2)


def _read(world: World, lake: Lake, name: str, counters: Counter[tuple[str, int]], seq: int, *, by_sql: bool) -> int:
    snapshot = lake.table(name).snapshot()
    if snapshot.seq < seq:
        world.violation(f"{name}: seq {snapshot.seq} after {seq}")
    text = (
        f"select o, max(n) as newest, max(case when k = {COUNTER} then n end) as counter, "
        f"count(*) as lines, count(distinct k) as keys from {name} group by o"
    )
    if by_sql:
        shown = lake.sql(text).to_pylist()
    else:
        rows = lake.table(name).to_arrow(columns=["o", "k", "n"])
        shown = duckdb.sql(text.replace(name, "rows")).to_arrow_table().to_pylist() if rows.num_rows else []
    for owner in shown:
        counter_of = name, owner["o"]
        if owner["lines"] != owner["keys"]:
            world.violation(f"{name}: a key stands twice: {owner}")
        elif owner["counter"] is None or owner["newest"] > owner["counter"]:
            world.violation(f"{name}: a part of a write shows: {owner}")
        elif owner["counter"] < counters[counter_of]:
            world.violation(f"{name}: after write {counters[counter_of]} now only {owner}")
        counters[counter_of] = owner["counter"] or counters[counter_of]
    for (table, owner), counter in counters.items():
        if table == name and owner not in {line["o"] for line in shown}:
            world.violation(f"{name}: owner {owner} is gone, with its counter {counter}")
        elif table == name:
            key = KINDS[name].key_of(owner, COUNTER)
            row = lake.table(name).get(tuple(key.values()) if len(key) > 1 else next(iter(key.values())))
            if row is None or row["n"] < counter:
                world.violation(f"{name}: get({key}) answers {row} after write {counter}")
    return int(snapshot.seq)
