"""Debezium's messages over the wire: a real broker, Spark's own source, and what the page on change data has one write.

The consumer is a process of its own, for the sake of the connector on its class path, and dies as kill -9 has it.
A column counts the messages of a row, so that one which took effect twice, or not at all, is seen.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Lake
from support.debezium import message, text, wrapped
from support.fetched import NotHere
from support.kafka import PARTITIONS, Broker
from support.kafka_jars import KafkaJars, jars
from support.waiting import WAIT_S_MAX, eventually, session_is_gone

# Six JVMs on a busy machine take their time.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.broker]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("messages", pa.int64())])
FIELDS = [
    {"type": "int64", "field": "id"},
    {"type": "string", "field": "name"},
    {"type": "int32", "field": "messages"},
]
KEYS, LAST = 12, 100
Sent = list[tuple[int, bytes | None, bytes | None]]


@pytest.fixture(scope="module")
def kafka_jars() -> KafkaJars:
    try:
        return jars()
    except NotHere as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def broker(kafka_jars: KafkaJars, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = Broker(kafka_jars, tmp_path_factory.mktemp("kafka"))
    try:
        yield started
    finally:
        started.close()


class Database:
    """What a connector tells of a table's life, and the rows that are left."""

    def __init__(self, seed: int) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.strange = 0
        self._chance, self._lsn = random.Random(seed), 0

    def life(self, length: int) -> Sent:
        """Of the messages of one key all go to the same partition, and a tombstone follows each delete."""
        told: Sent = []
        while len(told) < length:
            key = self._chance.randrange(KEYS)
            known = self.rows.get(key)
            if self._chance.random() < 0.15:
                self.strange += 1
                told.append(self._told(key, self._message("?", after={"id": key, "name": "nobody", "messages": 1})))
            elif known is not None and self._chance.random() < 0.3:
                del self.rows[key]
                told.append(self._told(key, self._message("d", before={**known, "messages": 1})))
                told.append(self._told(key, None))
            else:
                told.append(self.written(key))
        return told

    def written(self, key: int) -> tuple[int, bytes, bytes | None]:
        known = self.rows.get(key)
        row = {"id": key, "name": f"v{self._lsn}", "messages": 1}
        self.rows[key] = {**row, "messages": 1 + (known["messages"] if known else 0)}
        return self._told(key, self._message("u" if known else "c", before=None, after=row))

    def _message(self, op: str, **images: Any) -> Any:
        self._lsn += 1
        bare = message(op, lsn=self._lsn, **images)
        return wrapped(bare, FIELDS) if self._chance.random() < 0.5 else bare

    def _told(self, key: int, document: Any) -> tuple[int, bytes, bytes | None]:
        return key % PARTITIONS, text({"id": key}), None if document is None else text(document)


Follow = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The test's own."""
    return f"tests.{request.node.name}"


@pytest.fixture
def follow(broker: Broker, topic: str, kafka_jars: KafkaJars, tmp_path: Path) -> Iterator[Follow]:
    """Start a consumer."""
    started: list[subprocess.Popen[bytes]] = []
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])

    def start(**wishes: Any) -> subprocess.Popen[bytes]:
        arguments = (str(tmp_path / "lake"), str(tmp_path / "checkpoint"), (broker.address, topic), kafka_jars.spark)
        code = f"from support.kafka import follow; follow(*{arguments!r}, **{wishes!r})"
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()
        session_is_gone(child.pid)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with Lake(tmp_path / "lake") as opened:
        opened.create_table("crm.customers", SCHEMA, key="id", merge_rules={"messages": "sum"})
        yield opened


def held(lake: Lake) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in lake.table("crm.customers").to_arrow().to_pylist()}


def aside(lake: Lake) -> int:
    files = (lake.table("crm.customers").base_path.parent / "quarantine").rglob("*.json")
    return sum(len(file.read_text().splitlines()) for file in files)


def newest_batch(folder: Path, topic: str) -> tuple[int, dict[str, int]]:
    """Its number, from 0 on, and how far it goes in each partition, as Spark has written it down."""
    folder /= "checkpoint/offsets"
    number = max(int(file.name) for file in folder.iterdir() if file.name.isdecimal())
    return number, json.loads((folder / str(number)).read_text().splitlines()[-1])[topic]


def test_a_consumer_that_is_killed_again_and_again_takes_each_message_once(
    lake: Lake, broker: Broker, topic: str, follow: Follow, tmp_path: Path
) -> None:
    database = Database(7)
    sent = database.life(150)
    sent += [database.written(LAST + partition) for partition in range(PARTITIONS)]
    broker.send(topic, sent)
    wishes = {"messages_max": 24, "rows_max": 1000}
    table = lake.table("crm.customers")
    for at, commits in (("arrival.set_aside", 1), ("write.commit", 2), ("write.durable", 4)):
        child = follow(**wishes, at=at, nth=2)
        assert child.wait(WAIT_S_MAX) == -signal.SIGKILL
        session_is_gone(child.pid)
        assert table.snapshot().seq == commits, f"it died at {at}"

    child = follow(**wishes)
    eventually(lambda: child.poll() is not None or held(lake).keys() >= {LAST, LAST + 1}, "the last messages")

    assert child.poll() is None
    assert held(lake) == database.rows
    assert aside(lake) == database.strange
    number, offsets = newest_batch(tmp_path, topic)
    assert offsets == {str(partition): count for partition, count in Counter(each[0] for each in sent).items()}
    assert table.snapshot().seq == number + 1, "one commit for each batch"


def test_a_topic_that_grows_while_it_is_followed(lake: Lake, broker: Broker, topic: str, follow: Follow) -> None:
    """Batches that are opened and resolved on the executors, but for small ones."""
    database = Database(3)
    broker.send(topic, [database.written(1)])
    child = follow(messages_max=50, rows_max=5)
    for _ in range(3):
        told = database.life(24)
        eventually(lambda: child.poll() is not None or lake.table("crm.customers").snapshot().seq, "the first batch")
        broker.send(topic, told[:11])
        broker.send(topic, told[11:])
    broker.send(topic, [database.written(LAST + partition) for partition in range(PARTITIONS)])
    eventually(lambda: child.poll() is not None or held(lake).keys() >= {LAST, LAST + 1}, "the last messages")

    assert child.poll() is None
    assert held(lake) == database.rows
    assert aside(lake) == database.strange
