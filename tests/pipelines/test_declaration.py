"""Declarations: what they may say, what is refused, and the order of steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lithify import InvalidRequest
from lithify.core.expectation import Expectation
from lithify.pipelines.declaration import Graph, Step, parse_pipeline, parse_pipelines, pipelines_in_order

CLEAN: dict[str, Any] = {"name": "clean", "files": "raw/*.json", "target": "shop.clean", "key": "id"}
DAILY: dict[str, Any] = {
    "table": "shop.clean",
    "by": ["day"],
    "sql": "select day, sum(amount) as revenue from source group by day",
    "target": "shop.daily",
    "key": ["day"],
}


def step(**changes: Any) -> Step:
    return parse_pipeline("sales", {"steps": [{**CLEAN, **changes}]}).steps[0]


def test_a_pipeline_as_declared() -> None:
    expect = [{"name": "positive", "that": "amount >= 0", "otherwise": "quarantine"}, {"that": "id > 0"}]
    first, second = parse_pipeline("sales", {"steps": [{**CLEAN, "expect": expect}, DAILY]}).steps

    assert (first.label, first.kind, first.files, first.key) == ("sales.clean", "files", ("raw/*.json",), ("id",))
    assert first.sql == "select * from source"
    assert first.expect == (
        Expectation("positive", "amount >= 0", "quarantine"),
        Expectation("id > 0", "id > 0", "fail"),
    )
    assert (second.name, second.kind, second.feed) == ("daily", "groups", "pipeline.sales.daily")


def test_the_kind_follows_from_the_declaration() -> None:
    table = {"table": "shop.raw", "target": "shop.clean"}
    kinds = [
        parse_pipeline("p", {"steps": [{**table, **more}]}).steps[0].kind
        for more in ({}, {"by": "day"}, {"full": True})
    ]
    assert kinds == ["rows", "groups", "full"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"taget": "shop.x"}, r"step 'clean' of pipeline sales has a key 'taget'.*did you mean 'target'"),
        ({"table": "shop.raw"}, r"needs a source, one of the two"),
        ({"target": "orders"}, r"step 'clean' of pipeline sales: target: 'orders' is no table name"),
        ({"key": 7}, r"key is a name or a list of names"),
        ({"key": ["id", "id"]}, r"key names one twice"),
        ({"mode": "merge"}, r"mode is append, upsert or update, not 'merge'"),
        ({"mode": "upsert", "key": []}, r"mode upsert needs a key"),
        ({"mode": "update", "key": []}, r"mode update needs a key"),
        ({"mode": "update", "missing": "null"}, r"update leaves them"),
        ({"by": ["day"]}, r"by goes with table"),
        ({"full": True}, r"full goes with table"),
        ({"sql": ""}, r"sql is a text"),
        ({"order_by": 7}, r"order_by is a name or a list of names"),
        ({"order_by": ["at", "at"]}, r"order_by names one twice"),
        ({"sql": "select 1"}, r"does not read its source"),
        ({"name": "Clean Orders"}, r"'Clean Orders' cannot name a step"),
        ({"name": "seq"}, r"'seq' cannot be a step's name"),
        ({"format": "xml"}, r"format is csv, json or parquet, not 'xml'"),
        ({"expect": {"that": "x"}}, r"expect is a list"),
        ({"expect": [{"name": "x"}]}, r"needs a condition"),
        ({"expect": [{"that": "x > 0", "otherwise": "drop"}]}, r"otherwise is fail, quarantine or warn, not 'drop'"),
        ({"expect": [{"that": "x", "els": "fail"}]}, r"expectation 1 of step 'clean'.*'els'"),
        ({"expect": [{"that": "x"}, {"that": "x"}]}, r"two expectations of one name"),
        ({"envelope": "avro"}, r"step 'clean' of pipeline sales: envelope: envelope 'avro' is not known: use debezium"),
        ({"envelope": 7}, r"envelope 7 is not known"),
        ({"envelope": "debezium", "sql": "select id from source"}, r"sql is about rows.*table = \"shop.clean\""),
        ({"envelope": "debezium", "expect": [{"that": "x"}]}, r"expect is about rows"),
        ({"envelope": "debezium", "mode": "append"}, r"messages also delete"),
        ({"envelope": "debezium", "key": []}, r"messages also delete"),
        ({"envelope": "debezium", "format": "csv"}, r"JSON, one on each line, not csv"),
    ],
)
def test_a_bad_step_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        step(**changes)


def test_messages_come_from_files_or_from_a_table_and_another_envelope_is_another_declaration() -> None:
    table = {"table": "shop.raw", "target": "shop.clean", "envelope": "debezium:us", "bad_records": "quarantine"}
    from_table = parse_pipeline("p", {"steps": [{**table, "schema": "id BIGINT"}]}).steps[0]
    from_files = step(envelope="debezium")

    assert (from_table.kind, from_table.envelope, from_table.schema) == ("rows", "debezium:us", "id BIGINT")
    assert (from_files.kind, from_files.envelope) == ("files", "debezium")
    assert len({step().fingerprint(), from_files.fingerprint(), step(envelope="debezium:ms").fingerprint()}) == 3


def test_what_a_step_sets_is_part_of_its_declaration() -> None:
    assert step(mode="update").fingerprint() != step(mode="upsert").fingerprint() == step().fingerprint()


def test_several_columns_say_what_is_newer() -> None:
    assert step(order_by=["at", "lsn"]).order_by == ("at", "lsn")
    assert step(order_by=["at"]).order_by == step(order_by="at").order_by == "at"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"full": True}, r"by and full are two ways"),
        ({"order_by": "at"}, r"leave order_by out"),
        ({"target": "shop.clean"}, r"reads shop.clean and keeps it too"),
        ({"schema": "id BIGINT"}, r"schema goes with files"),
        ({"envelope": "debezium", "sql": "select * from source"}, r"by is about rows"),
        ({"by": "day", "table": None}, r"table: a table name is text"),
    ],
)
def test_a_bad_step_over_a_table_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_pipeline("sales", {"steps": [{**DAILY, **changes}]})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"sales": {}}, r"pipeline sales has no steps"),
        ({"sales": {"steps": []}}, r"pipeline sales has no steps"),
        ({"sales": {"steps": [CLEAN], "evry": 3}}, r"pipeline sales has a key 'evry'"),
        ({"Sales": {"steps": [CLEAN]}}, r"'Sales' cannot name a pipeline"),
        ({"sales": {"steps": ["clean"]}}, r"step 1 of pipeline sales is not a table"),
        ([], r"pipelines are tables"),
        ({"a": {"steps": [CLEAN, CLEAN]}}, r"two steps called 'clean'"),
        ({"a": {"steps": [CLEAN]}, "b": {"steps": [{**DAILY, "target": "shop.clean", "table": "x.y"}]}}, r"both keep"),
    ],
)
def test_a_bad_document_is_refused(document: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_pipelines(document)


def test_two_feeds_of_files_may_share_a_table() -> None:
    found = parse_pipeline("sales", {"steps": [CLEAN, {**CLEAN, "name": "more", "files": "other/*.csv"}]})
    assert [each.target for each in found.steps] == ["shop.clean", "shop.clean"]


class TestFingerprint:
    def test_it_changes_with_what_decides_the_rows(self) -> None:
        first = parse_pipeline("p", {"steps": [DAILY]}).steps[0]
        quarantine = Expectation("x", "revenue > 0", "quarantine")
        numbers = {
            first.fingerprint("a"),
            first.fingerprint("b"),
            replace(first, sql="select day from source").fingerprint("a"),
            replace(first, by=("day", "country")).fingerprint("a"),
            replace(first, expect=(quarantine,)).fingerprint("a"),
        }
        assert len(numbers) == 5

    def test_it_stays_with_what_does_not(self) -> None:
        first = parse_pipeline("p", {"steps": [DAILY]}).steps[0]
        warn = Expectation("x", "revenue > 0", "warn")
        assert first.fingerprint("a") == replace(first, expect=(warn,), name="other").fingerprint("a") < 2**63


def graph(*arrows: tuple[str, str], lookups: dict[str, set[str]] | None = None) -> Graph:
    steps = tuple(
        Step("p" if n % 2 else "q", f"s{n}", target, table=source) for n, (source, target) in enumerate(arrows)
    )
    return Graph(steps, {each.label: frozenset((lookups or {}).get(each.name, ())) for each in steps})


class TestOrder:
    def test_a_step_runs_after_those_whose_targets_it_reads(self) -> None:
        found = graph(("a.c", "a.d"), ("a.b", "a.c"), ("a.a", "a.b"), ("x.x", "x.y")).ordered()
        assert [each.target for each in found] == ["a.b", "a.c", "a.d", "x.y"]

    def test_tables_that_a_query_looks_things_up_in_come_first_too(self) -> None:
        found = graph(("a.a", "a.b"), ("x.x", "x.y"), lookups={"s0": {"x.y"}}).ordered()
        assert [each.target for each in found] == ["x.y", "a.b"]
        assert pipelines_in_order(found) == ["p", "q"]

    def test_a_circle_over_pipelines_is_told_step_by_step(self) -> None:
        with pytest.raises(InvalidRequest, match=r"circle.*q\.s0 \(a\.b\) → p\.s1 \(a\.c\) → q\.s2 \(a\.a\) → q\.s0"):
            graph(("a.a", "a.b"), ("a.b", "a.c"), ("a.c", "a.a")).ordered()

    def test_a_circle_through_a_lookup_is_found(self) -> None:
        with pytest.raises(InvalidRequest, match="circle"):
            graph(("a.a", "a.b"), ("a.b", "a.c"), lookups={"s0": {"a.c"}}).ordered()

    def test_a_query_that_looks_into_its_own_target_is_a_circle(self) -> None:
        with pytest.raises(InvalidRequest, match="circle"):
            graph(("a.a", "a.b"), lookups={"s0": {"a.b"}}).ordered()
