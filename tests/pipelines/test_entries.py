"""What may be declared to run by itself, and what is said of a declaration that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from lithify import InvalidRequest, Settings
from lithify.pipelines.entries import declared_entries
from lithify.pipelines.schedule import Schedule

STEP = {"table": "shop.orders", "target": "shop.daily", "key": "id"}
STREAM = {"source": "landing", "target": "shop.orders"}


def pipeline(**schedule: Any) -> Settings:
    return Settings(pipelines={"sales": {"steps": [STEP], **schedule}})


@pytest.mark.parametrize(
    ("said", "schedule", "text"),
    [
        ({"every": "30s"}, Schedule(every_s=30), "every 30 s"),
        ({"cron": "5 *  * * 1"}, Schedule(cron="5 * * * 1"), "at 5 * * * 1 (UTC)"),
        ({"on": "shop.orders"}, Schedule(on="shop.orders"), "when shop.orders changes"),
    ],
)
def test_a_pipeline_says_when_it_runs(said: dict[str, str], schedule: Schedule, text: str) -> None:
    entry = declared_entries(pipeline(**said))["sales"]
    assert (entry.schedule, str(entry.schedule)) == (schedule, text)


def test_without_a_schedule_it_runs_on_request_and_a_stream_every_ten_seconds() -> None:
    entries = declared_entries(Settings(pipelines={"sales": {"steps": [STEP]}}, streams={"landing": STREAM}))
    assert entries["sales"].schedule is None
    assert entries["landing"].schedule == Schedule(every_s=10)
    assert (entries["sales"].sources, entries["sales"].targets) == (("shop.orders",), ("shop.daily",))
    assert (entries["landing"].sources, entries["landing"].targets) == ((), ("shop.orders",))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"every": "soon"}, "pipeline sales: every = 'soon' is no time from 1s to 168h"),
        ({"every": 30}, "pipeline sales: every is a text, not 30"),
        ({"every": "10ms"}, "is no time from 1s to 168h"),
        ({"cron": "hourly"}, "pipeline sales: 'hourly' is no cron expression"),
        ({"cron": "0 0 30 2 *"}, "pipeline sales: the moment of cron expression '0 0 30 2 *' never comes"),
        ({"on": "orders"}, "pipeline sales: on names a table"),
        ({"on": "shop.daily"}, "pipeline sales: it would run on its own changes"),
        ({"every": "1m", "on": "shop.orders"}, "pipeline sales: every and on are several ways to say when it runs"),
        ({"evry": "1m"}, "pipeline sales has a key 'evry' that is not known: did you mean 'every'"),
    ],
)
def test_a_schedule_that_cannot_be_names_its_pipeline(said: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        declared_entries(pipeline(**said))
    assert message in error.value.message


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("landing", "stream files says nothing"),
        ({"target": "a.b"}, 'stream files needs source = "folder"'),
        ({"source": "landing"}, 'stream files needs target = "namespace.table"'),
        ({**STREAM, "source": ""}, "stream files: source is a text"),
        ({**STREAM, "target": "orders"}, "stream files: 'orders'"),
        ({**STREAM, "mode": "replace"}, "stream files: mode is append, upsert or update, not 'replace'"),
        ({**STREAM, "if_changed": "yes"}, "stream files: if_changed is true or false"),
        ({**STREAM, "files_max": 0}, "stream files: files_max is a whole number from 1"),
        ({**STREAM, "files_max": True}, "stream files: files_max is a whole number from 1"),
        ({**STREAM, "envelope": "avro"}, "stream files: "),
        ({**STREAM, "formt": "csv"}, "stream files has a key 'formt' that is not known: did you mean 'format'"),
        ({**STREAM, "every": "1d"}, "stream files: every = '1d' is no time"),
        ({**STREAM, "on": "shop.orders"}, "stream files: it would run on its own changes"),
    ],
)
def test_a_stream_that_cannot_be_is_named(said: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        declared_entries(Settings(streams={"files": said}))
    assert message in error.value.message


@pytest.mark.parametrize(
    ("more", "remote"), [({}, True), ({"checkpoint": "s3://bucket/a"}, True), ({"checkpoint": "s3a://bucket/a"}, False)]
)
def test_a_stream_needs_a_folder_for_what_it_has_taken(more: dict[str, str], remote: bool) -> None:
    with pytest.raises(InvalidRequest, match=r'stream files .* name one with checkpoint = "DIR"'):
        declared_entries(Settings(streams={"files": {**STREAM, **more}}), remote=remote)


def test_a_stream_of_a_lake_in_a_bucket_with_a_folder_for_what_it_has_taken() -> None:
    streams = {"files": {**STREAM, "checkpoint": "/var/lib/taken"}}
    assert declared_entries(Settings(streams=streams), remote=True)["files"].name == "files"


def test_names_are_those_of_both() -> None:
    settings = Settings(pipelines={"sales": {"steps": [STEP]}}, streams={"sales": STREAM})
    with pytest.raises(InvalidRequest, match="a pipeline and a stream called 'sales'"):
        declared_entries(settings)
    with pytest.raises(InvalidRequest, match="'Sales' cannot name a stream"):
        declared_entries(Settings(streams={"Sales": STREAM}))
