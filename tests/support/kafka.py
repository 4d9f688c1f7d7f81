"""A real broker of Kafka on 127.0.0.1, one JVM that is its own controller, and what goes to it and comes from it."""

from __future__ import annotations

import os
import re
import subprocess
import textwrap
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from lithify.spark.java import find_java
from support.faults import FaultyStore, kill_process
from support.kafka_jars import KafkaJars
from support.pages import DOCS
from support.s3_servers import WITH_ME, free_port
from support.waiting import session_is_gone

PARTITIONS = 2
STOP_S_MAX = 30
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG4J = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
"""
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"


class Broker:
    """`address`: where clients find it. Topics are there from their first message on, with two partitions."""

    def __init__(self, jars: KafkaJars, folder: Path) -> None:
        port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self._log = folder / "broker.log"
        (folder / "log4j2.properties").write_text(_LOG4J)
        java, quiet = str(find_java().executable), f"-Dlog4j2.configurationFile={folder}/log4j2.properties"
        paths, options = ":".join(jars.broker), [*_OPTIONS, quiet]
        self._clients = _Clients(java, paths, options)
        file = folder / "server.properties"
        file.write_text(_properties(folder / "data", port, controller))
        self._clients.format(file)
        command = ["sh", "-c", WITH_ME, "sh", java, *options, "-cp", paths, "kafka.Kafka", str(file)]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self._producer = self._clients.producer(self.address)

    def send(self, topic: str, messages: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Each a partition, a key and a value. All of them are in the topic then."""
        assert self._process.poll() is None, self._log.read_text()
        self._clients.send(self._producer, topic, messages)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._clients.close(self._producer)
        self._process.stdin.close()
        self._process.wait(STOP_S_MAX)
        session_is_gone(self._process.pid)


def _properties(data: Path, port: int, controller: int) -> str:
    said = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "num.partitions": PARTITIONS,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    return "".join(f"{name}={value}\n" for name, value in said.items())


class _Clients:
    """Kafka's own clients, in a JVM that ends with this process."""

    def __init__(self, java: str, paths: str, options: list[str]) -> None:
        from pyspark.find_spark_home import _find_spark_home

        (py4j,) = (Path(_find_spark_home()) / "jars").glob("py4j-*.jar")
        port, self._process = launch_gateway(
            jarpath=str(py4j), classpath=paths, javaopts=options, java_path=java, die_on_exit=True, return_proc=True
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        self._jvm = self._gateway.jvm

    def format(self, properties: Path) -> None:
        said = self._jvm.java.io.ByteArrayOutputStream()
        arguments = self._gateway.new_array(self._jvm.java.lang.String, 5)
        for at, word in enumerate(("format", "-t", _CLUSTER, "-c", str(properties))):
            arguments[at] = word
        stream = self._jvm.java.io.PrintStream(said)
        assert self._jvm.kafka.tools.StorageTool.execute(arguments, stream) == 0, said.toString()

    def producer(self, address: str) -> Any:
        bytes_as_they_are = "org.apache.kafka.common.serialization.ByteArraySerializer"
        settings = {"bootstrap.servers": address, "acks": "all"}
        settings |= {"key.serializer": bytes_as_they_are, "value.serializer": bytes_as_they_are}
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)

    def send(self, producer: Any, topic: str, messages: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        sent = [producer.send(record(topic, partition, key, value)) for partition, key, value in messages]
        for each in sent:
            each.get()

    def close(self, producer: Any) -> None:
        try:
            producer.close()
        finally:
            self._gateway.close()
            self._process.stdin.close()
            self._process.wait(STOP_S_MAX)


# -- who follows a topic

_HEADING = "## Debezium as it comes"


def recipe(address: str, topic: str, checkpoint: Path, messages_max: int) -> str:
    """What the page tells to write, with this broker, topic and folder, and in small portions that follow each other
    fast.
    """
    page = (DOCS / "how-to" / "change-data-capture.md").read_text()
    found = re.search(rf"^{_HEADING}$.*?\n\n((?:    [^\n]*\n|\n)*    \)\n)\n\S", page, re.M | re.S)
    assert found is not None, "the page has a recipe"
    text = textwrap.dedent(found[1])
    for there, here in {
        "broker:9092": address,
        "server.public.customers": topic,
        "checkpoints/customers": str(checkpoint),
        "100_000": str(messages_max),
        "5 seconds": "50 milliseconds",
    }.items():
        assert text.count(there) == 1, f"the recipe has {there} once"
        text = text.replace(there, here)
    return text


def follow(
    path: str,
    checkpoint: str,
    broker: tuple[str, str],
    jars: list[str],
    messages_max: int,
    rows_max: int,
    at: str = "",
    nth: int = 1,
) -> None:
    """In a child: write what comes to the topic into a table, as the page tells it; to die when `at` is reached."""
    from lithify import Lake, Settings
    from lithify.spark.session import SparkOptions, local_session

    threading.Thread(target=_end_with_parent, daemon=True).start()
    conf = {"spark.jars": ",".join(jars)}
    options = SparkOptions(master="local[2]", driver_memory="1g", shuffle_partitions=1, extra_conf=conf)
    store = FaultyStore(at, kill_process, nth) if at else None
    spark = local_session(options)
    lake = Lake(path, spark, store=store, settings=Settings(stream_rows_max=rows_max))
    names: dict[str, Any] = {"spark": spark, "customers": lake.table("crm.customers")}
    exec(recipe(*broker, Path(checkpoint), messages_max), names)
    names["query"].awaitTermination()


def _end_with_parent() -> None:
    """Then nobody writes to our input any more."""
    while os.read(0, 1):
        pass
    kill_process()
