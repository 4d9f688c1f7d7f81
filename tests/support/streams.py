"""Events of a change feed, files of them, and the rows they leave."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lithify import Lake, Settings
from lithify.files.local import LocalStorage
from lithify.lake.table import Commit, Table
from lithify.streams.apply import Checkpoint, apply_batch
from support.folders import put_text

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("v", pa.string())])
EVENTS = "id long, at long, v string, op string"
EVENT_COLUMNS = pa.schema([*SCHEMA, ("op", pa.string())])


@dataclass(frozen=True)
class Event:
    id: int | None
    at: int | None
    v: str | None
    op: str = "insert"

    @property
    def row(self) -> dict[str, Any]:
        return {"id": self.id, "at": self.at, "v": self.v}


def events_of(seed: int, count: int, keys: int = 20) -> list[Event]:
    """Inserts, updates and deletes with late ones and duplicates among them."""
    chance = random.Random(seed)
    events: list[Event] = []
    for number in range(count):
        if events and chance.random() < 0.1:
            events.append(chance.choice(events))
            continue
        op = chance.choice(["insert", "UPDATE", "u", "delete", "D"])
        events.append(Event(chance.randrange(keys), chance.choice([None, *range(9)]), f"{seed}.{number}", op))
    return events


def table_of(events: Iterable[Event]) -> pa.Table:
    return pa.Table.from_pylist([asdict(event) for event in events], EVENT_COLUMNS)


def write_file(folder: Path, number: int, events: Sequence[Event]) -> None:
    """JSON lines that appear as a whole, each file younger than the one before."""
    folder.mkdir(exist_ok=True)
    waiting = folder / f".{number}"
    waiting.write_text("".join(json.dumps(asdict(event)) + "\n" for event in events))
    os.utime(waiting, (1_700_000_000 + number, 1_700_000_000 + number))
    waiting.rename(folder / f"{number:04}.json")


def applied(events: Iterable[Event], there: Iterable[dict[str, Any]] = (), ordered: bool = True) -> dict[int, Any]:
    """The oracle: each event applied in order of arrival, by key. A delete that says when is remembered."""
    rows, gone = {row["id"]: row for row in there}, {}
    for event in events:
        assert event.id is not None
        known = rows.get(event.id) or gone.get(event.id)
        late = ordered and known is not None and _rank(event.row) < _rank(known)
        if event.op.lower() not in ("delete", "d"):
            if not late:
                rows[event.id] = event.row
                gone.pop(event.id, None)
        elif not ordered or event.at is None:
            rows.pop(event.id, None)
            gone.pop(event.id, None)
        elif not late:
            rows.pop(event.id, None)
            gone[event.id] = event.row
    return rows


def _rank(row: dict[str, Any]) -> int:
    return -1 if row["at"] is None else int(row["at"])


# -- a feed that a child process brings, and another one goes on with

PORTIONS = 4


def portion(number: int) -> list[Event]:
    """Each with a record that has no key, and one of them empty."""
    return [] if number == 2 else [*events_of(number, 12, keys=6), Event(None, 0, f"lost {number}")]


def bring(store: LocalStorage | None, path: str, told: str, table: str) -> None:
    """Send the portions that nobody has heard of yet, as a streaming query does: told after each one that is in."""
    with Lake(path, store=store, settings=Settings(checkpoint_every=2)) as lake:
        begin = int(Path(told).read_text()) if Path(told).exists() else 0
        for number in range(begin, PORTIONS):
            send(lake.table(table), number)
            put_text(Path(told), str(number + 1))


def send(table: Table, number: int, feed: str = "stream.q") -> Commit:
    events, keyed = table_of(portion(number)), bool(table.definition.key)
    return apply_batch(
        table._internals,
        events if keyed else events.drop_columns(["op"]),
        checkpoint=Checkpoint(feed, number, number - 1 if number else None),
        mode="upsert" if keyed else "append",
        op_column="op" if keyed else None,
        null_keys="quarantine",
    )


def stream_until_killed(path: str, folder: str) -> None:
    """In a child: a streaming query that dies when its second batch is committed, before Spark knows."""
    from lithify.spark.session import SparkOptions, local_session
    from support.faults import FaultyStore, kill_process

    spark = local_session(SparkOptions(master="local[1]", driver_memory="1g", shuffle_partitions=1))
    store = FaultyStore("write.durable", kill_process, nth=2)
    table = Lake(path, spark, store=store).table("s.t")
    stream = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(f"{folder}/in")
    query = (
        stream.writeStream.foreachBatch(table.stream_writer(op_column="op"))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    query.awaitTermination()
