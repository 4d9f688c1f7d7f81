"""What a step has to do, told without Spark: from what its target remembers, its source's seq, and the files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import Conflict, Corruption, InvalidRequest, Lake, NotFound
from lithify.pipelines import pending as pipeline_work
from lithify.pipelines.answer import committed
from lithify.pipelines.check import graph_of
from lithify.pipelines.checkpoint import FileSeen, Ledger, Ledgers, StepState, state_of
from lithify.pipelines.context import Moment
from lithify.pipelines.declaration import Step, parse_pipeline
from lithify.pipelines.pending import StepWork, work_of
from lithify.streams.apply import apply_batch
from support.looks import looks_counted

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


@pytest.fixture
def shop(lake: Lake) -> Lake:
    lake.create_table("a.source", SCHEMA, key="id").upsert([{"id": 1}], missing="null")
    return lake


def step(**changes: Any) -> Step:
    declared = {"name": "s", "table": "a.source", "target": "a.target", "key": "id", **changes}
    return parse_pipeline("p", {"steps": [{k: v for k, v in declared.items() if v is not None}]}).steps[0]


def now(lake: Lake) -> Moment:
    return Moment(lake._internals.pipelines)


def finish(lake: Lake, work: StepWork, **facts: int) -> None:
    """Commit a run of the step, without rows."""
    target = lake.create_table("a.target", SCHEMA, key="id", if_not_exists=True)
    known = {"read": work.until, "declared": work.declared, **facts}
    checkpoint = work.state.next(work.step.feed, **{name: value for name, value in known.items() if value is not None})
    apply_batch(target._internals, SCHEMA.empty_table(), checkpoint=checkpoint, mode="upsert")


class TestTables:
    def test_a_step_that_has_not_run_reads_everything(self, shop: Lake) -> None:
        work = work_of(now(shop), step())
        assert (work.whole, work.since, work.until, work.anew) == (True, None, 1, True)

    def test_a_step_that_has_run_reads_what_changed_since(self, shop: Lake) -> None:
        finish(shop, work_of(now(shop), step()))
        assert work_of(now(shop), step()).idle
        shop.table("a.source").upsert([{"id": 2}], missing="null")

        work = work_of(now(shop), step())

        assert (work.whole, work.idle, work.since, work.until, work.anew) == (False, False, 1, 2, False)
        assert work_of(now(shop), step(full=True)).whole
        assert work_of(now(shop), step(), full=True).why == "asked for"

    def test_rows_that_were_erased_from_the_past_mean_everything(self, shop: Lake) -> None:
        """The delete is not among the changes any more, and the target may have the row."""
        shop.table("a.source").upsert([{"id": 2}], missing="null")
        finish(shop, work_of(now(shop), step()))
        shop.erase("a.source", keys=[2]).wait()

        work = work_of(now(shop), step())

        assert (work.whole, "were erased" in work.why) == (True, True)

    def test_who_has_read_the_delete_before_goes_on_as_ever(self, shop: Lake) -> None:
        erasure = shop.erase("a.source", keys=[1])
        finish(shop, work_of(now(shop), step()))
        erasure.wait()
        shop.table("a.source").upsert([{"id": 2}], missing="null")

        work = work_of(now(shop), step())

        assert (work.whole, work.since, work.until) == (False, 2, 3)

    def test_more_changes_than_fit_here_mean_everything_also_where_one_commit_brings_them(
        self, shop: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pipeline_work, "CHANGES_ROWS_MAX", 3)
        finish(shop, work_of(now(shop), step()))
        shop.table("a.source").upsert([{"id": n} for n in range(3)], missing="null")
        assert not work_of(now(shop), step()).whole

        finish(shop, work_of(now(shop), step()))
        shop.table("a.source").upsert([{"id": n} for n in range(4)], missing="null")
        assert (work_of(now(shop), step()).whole, work_of(now(shop), step()).why) == (True, "more than 3 rows changed")

    def test_another_query_or_another_table_of_the_name_means_everything(self, shop: Lake) -> None:
        finish(shop, work_of(now(shop), step()))
        assert work_of(now(shop), step(sql="select id, v from source")).whole
        shop.drop_table("a.source")
        assert work_of(now(shop), step()).why == "a.source is not there yet"
        shop.create_table("a.source", SCHEMA, key="id")
        assert work_of(now(shop), step()).whole

    def test_going_back_to_an_earlier_declaration_means_everything_too(self, shop: Lake) -> None:
        other = step(sql="select id, v from source")
        finish(shop, work_of(now(shop), step()))
        finish(shop, work_of(now(shop), other))

        assert work_of(now(shop), step()).whole
        assert work_of(now(shop), other).idle

    def test_after_a_step_of_another_name_has_kept_the_target_everything_is_computed(self, shop: Lake) -> None:
        finish(shop, work_of(now(shop), step()))
        finish(shop, work_of(now(shop), step(name="other", sql="select id, 'x' as v from source")))

        assert (work_of(now(shop), step()).whole, work_of(now(shop), step()).idle) == (True, False)
        finish(shop, work_of(now(shop), step()))
        assert work_of(now(shop), step()).idle

    def test_a_target_that_was_created_anew_remembers_nothing(self, shop: Lake) -> None:
        finish(shop, work_of(now(shop), step()))
        shop.drop_table("a.target")
        shop.create_table("a.target", SCHEMA, key="id")
        assert state_of(now(shop).find("a.target"), step().feed) == StepState()
        assert work_of(now(shop), step()).whole

    def test_a_run_that_was_overtaken_is_refused(self, shop: Lake) -> None:
        slow, fast = work_of(now(shop), step()), work_of(now(shop), step())
        finish(shop, fast)

        with pytest.raises(Conflict, match=r"p\.s was run by somebody else meanwhile"):
            committed(
                step(),
                now(shop).table("a.target"),
                pa.table({"id": [7], "v": ["late"]}),
                slow.state.next(step().feed, read=9),
                "a.source",
                {},
            )

        assert shop.table("a.target").get(7) is None
        assert state_of(now(shop).find("a.target"), step().feed).read == 1

    def test_what_a_target_remembers_is_as_old_as_the_rows_that_were_seen(self, shop: Lake) -> None:
        """Otherwise a run that was overtaken in between would compare with rows from before and be let in."""
        finish(shop, work_of(now(shop), step()))
        seen = now(shop).table("a.target")
        finish(shop, work_of(now(shop), step(), full=True))

        assert state_of(now(shop).table("a.target"), step().feed).number == 2
        assert (state_of(seen, step().feed).number, seen.snapshot.seq) == (1, 1)

    def test_a_damaged_table_is_not_taken_for_one_that_is_not_there_yet(self, shop: Lake) -> None:
        finish(shop, work_of(now(shop), step()))
        shutil.rmtree(shop.path / "a" / "source" / "base")
        with Lake(shop.path) as again, pytest.raises(NotFound, match=r"base holds no Delta table"):
            work_of(now(again), step())

    def test_a_table_that_nobody_has_is_refused(self, shop: Lake) -> None:
        with pytest.raises(NotFound, match=r"p\.s reads table a\.nobody, which there is not"):
            graph_of(now(shop), [step(table="a.nobody")])

    def test_lookups_are_tables_of_the_lake_and_targets_to_come(self, shop: Lake) -> None:
        query = "select source.* from source join a.source x using (id) join a.later using (id) join b.none using (id)"
        later = step(name="later", target="a.later")
        graph = graph_of(now(shop), [step(sql=query), later])
        assert graph.reads["p.s"] == {"a.source", "a.later"}
        assert [each.name for each in graph.ordered()] == ["later", "s"]


class TestFiles:
    @pytest.fixture
    def inbox(self, tmp_path: Path) -> Path:
        folder = tmp_path / "inbox"
        folder.mkdir()
        return folder

    def files(self, inbox: Path) -> Step:
        return step(table=None, files=f"{inbox}/*.json")

    def put(self, path: Path, second: int) -> None:
        path.write_text("{}")
        os.utime(path, (second, second))

    def test_nothing_there_yet(self, lake: Lake, inbox: Path) -> None:
        assert work_of(now(lake), self.files(inbox)).why == "no files yet"

    def test_new_and_changed_files_the_oldest_first(self, lake: Lake, inbox: Path) -> None:
        for name, second in (("a", 5), ("b", 3), ("c", 4), (".d", 1), ("_e", 1)):
            self.put(inbox / f"{name}.json", second)
        work = work_of(now(lake), self.files(inbox))
        assert [Path(file.path).name for file in work.files] == ["b.json", "c.json", "a.json"]
        number = Ledgers(lake._runtime, work.step).write(work.ledger.with_files(work.files, None))
        finish(lake, work, ledger=number)
        assert work_of(now(lake), self.files(inbox)).why == "no new files among 3 files"

        self.put(inbox / "b.json", 9)
        (inbox / "c.json").unlink()

        assert [Path(file.path).name for file in work_of(now(lake), self.files(inbox)).files] == ["b.json"]
        assert len(work_of(now(lake), self.files(inbox), full=True).files) == 2

    def test_a_file_with_nothing_in_it_is_left_until_there_is(self, lake: Lake, inbox: Path) -> None:
        (inbox / "a.json").touch()
        assert work_of(now(lake), self.files(inbox)).idle
        self.put(inbox / "a.json", 1)
        assert len(work_of(now(lake), self.files(inbox)).files) == 1

    def test_another_query_is_applied_to_files_that_were_read_only_when_asked_for(
        self, lake: Lake, inbox: Path
    ) -> None:
        self.put(inbox / "a.json", 1)
        work = work_of(now(lake), self.files(inbox))
        finish(lake, work, ledger=Ledgers(lake._runtime, work.step).write(work.ledger.with_files(work.files, None)))

        changed = replace(self.files(inbox), sql="select id from source")
        assert (work_of(now(lake), changed).idle, "--full" in work_of(now(lake), changed).why) == (True, True)
        assert "--full" not in work_of(now(lake), self.files(inbox)).why

    def test_a_ledger_that_no_commit_names_counts_for_nothing(self, lake: Lake, inbox: Path) -> None:
        self.put(inbox / "a.json", 1)
        work = work_of(now(lake), self.files(inbox))
        Ledgers(lake._runtime, work.step).write(work.ledger.with_files(work.files, None))
        assert len(work_of(now(lake), self.files(inbox)).files) == 1

    def test_appending_is_not_begun_again_when_what_was_read_is_forgotten(self, lake: Lake, inbox: Path) -> None:
        self.put(inbox / "a.json", 1)
        work = work_of(now(lake), self.files(inbox))
        Ledgers(lake._runtime, work.step).write(work.ledger.with_files(work.files, None))
        lake.create_table("a.target", SCHEMA).append([{"id": 1}])

        with pytest.raises(InvalidRequest, match=r"p\.s has read files before, but a\.target no longer remembers"):
            work_of(now(lake), self.files(inbox))


class TestLedgers:
    def test_what_was_written_is_read(self, lake: Lake) -> None:
        ledgers = Ledgers(lake._runtime, step())
        files = [FileSeen("/x/a.json", 10, 1_700_000_000_000_000_001), FileSeen("/x/ü.json", 11, 2)]
        first = ledgers.write(Ledger().with_files(files[:1], None))
        second = ledgers.write(ledgers.read(first).with_files(files[1:], {"type": "struct", "fields": []}))

        found = ledgers.read(second)

        assert found == Ledger({file.path: file for file in files}, {"type": "struct", "fields": []})
        ledgers.remove([name for name in ledgers.names() if name.startswith(f"{first:015x}")])
        assert ledgers.read(second) == found
        with pytest.raises(NotFound, match=r"run the step with --full"):
            ledgers.read(first)

    def test_a_torn_one_says_what_to_do(self, lake: Lake) -> None:
        ledgers = Ledgers(lake._runtime, step())
        number = ledgers.write(Ledger())
        path = lake._runtime.control / "pipelines" / "p" / "s" / f"{number:015x}.json.gz"
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(Corruption, match=r"--full"):
            ledgers.read(number)


def test_a_run_with_nothing_to_do_needs_no_spark_and_leaves_no_trace(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(shop, work_of(now(shop), step()))

    def no_spark() -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(shop._internals, "_session", no_spark)
    pipeline = shop.pipeline("p", {"steps": [{"name": "s", "table": "a.source", "target": "a.target", "key": "id"}]})

    with looks_counted() as looks:
        report = pipeline.run()

    assert looks == {"source/changes": 1, "source/base": 1, "target/changes": 1, "target/base": 1}
    assert (report.outcome, [each.why for each in report.steps]) == ("idle", ["up to date"])
    assert pipeline.history() == []
    assert shop.table("a.target").snapshot().seq == 1


def test_steps_and_pipelines_that_there_are_not(shop: Lake) -> None:
    with pytest.raises(InvalidRequest, match=r"no pipeline 'sales' in lithify\.toml: there is none"):
        shop.pipeline("sales")
    pipeline = shop.pipeline("p", {"steps": [{"table": "a.source", "target": "a.target", "key": "id"}]})
    with pytest.raises(InvalidRequest, match=r"no step 'other': it has target"):
        pipeline.run(step="other")
