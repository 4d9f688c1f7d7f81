"""What a step's query answers, judged by the step's expectations, and brought into the target in one commit.

A small answer is fetched once and judged here; a large one is kept by Spark while it is counted and written. Either way
nothing is written before every expectation has been looked at: one that says `fail` leaves the target as it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.arrow_rows import anti_join, take
from lithify.core.expectation import Expectation
from lithify.core.json_out import dumps
from lithify.core.names import GIVEN
from lithify.core.wording import plural
from lithify.errors import Conflict, InvalidRequest
from lithify.pipelines.context import Seen
from lithify.pipelines.declaration import Step
from lithify.streams.apply import Checkpoint, apply_batch
from lithify.tables.handles import Handles
from lithify.write.quarantine import set_aside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lithify.core.results import Commit

EXAMPLES_MAX = 3
_SHOWN_CHARACTERS_MAX = 200


@dataclass(frozen=True)
class Judged:
    """Rows that are to be kept, here or on Spark; rows that are not, if any; and what is said about them."""

    rows: pa.Table | DataFrame
    aside: pa.Table | DataFrame | None = None
    set_aside: int = 0
    warned: Mapping[str, int] = field(default_factory=dict)

    @property
    def small(self) -> pa.Table | None:
        return self.rows if isinstance(self.rows, pa.Table) else None


@contextlib.contextmanager
def judged_answer(step: Step, frame: DataFrame, rows_max: int) -> Iterator[Judged]:
    """Refuses the answer where an expectation that says `fail` does not hold."""
    from lithify.spark.micro_batch import fetched
    from lithify.spark.transforms import examples_of, failures, judged, persisting, split

    looked_at = judged(frame, step.expect, f"step {step.label}")
    small = fetched(looked_at, rows_max)
    if small is not None:
        yield judge(step, small)
        return
    if not step.expect:
        yield Judged(frame)
        return
    with persisting(looked_at) as rows:
        _, counts = failures(rows)
        for each in step.expect:
            if each.otherwise == "fail" and counts.get(each.name):
                raise refusal(step, each, counts[each.name], examples_of(rows, each.name, EXAMPLES_MAX))
        quarantining = [each.name for each in step.expect if each.otherwise == "quarantine" and counts.get(each.name)]
        good, bad = split(rows, quarantining)
        yield Judged(
            good, bad if quarantining else None, sum(counts[name] for name in quarantining), _warned(step, counts)
        )


def judge(step: Step, rows: pa.Table) -> Judged:
    """The same of an answer that is here."""
    from lithify.spark.transforms import FAILED

    failed = rows.column(FAILED).combine_chunks()
    rows = rows.drop_columns([FAILED])
    names = np.asarray(failed.flatten().to_pylist(), object)
    of_row = np.repeat(np.arange(len(failed)), np.asarray(pc.list_value_length(failed)))
    counts = {each.name: int((names == each.name).sum()) for each in step.expect}
    for each in step.expect:
        if each.otherwise == "fail" and counts[each.name]:
            rows_of_it = of_row[names == each.name][:EXAMPLES_MAX]
            raise refusal(step, each, counts[each.name], take(rows, rows_of_it).to_pylist())
    bad = np.zeros(rows.num_rows, bool)
    for each in step.expect:
        if each.otherwise == "quarantine":
            bad[of_row[names == each.name]] = True
    if not bad.any():
        return Judged(rows, warned=_warned(step, counts))
    why = pa.array(["does not hold: " + ", ".join(reasons) for reasons in failed.filter(pa.array(bad)).to_pylist()])
    aside = rows.filter(pa.array(bad)).append_column(FAILED, why)
    return Judged(rows.filter(pa.array(~bad)), aside, int(bad.sum()), _warned(step, counts))


def _warned(step: Step, counts: Mapping[str, int]) -> dict[str, int]:
    return {each.name: counts[each.name] for each in step.expect if each.otherwise == "warn" and counts.get(each.name)}


def refusal(step: Step, expectation: Expectation, count: int, examples: Sequence[Mapping[str, Any]]) -> InvalidRequest:
    said = (
        f"step {step.label}: expectation {expectation.name!r} ({expectation.that}) does not hold for "
        f"{plural(count, 'row')}, so {step.target} was left as it was"
    )
    shown = [dumps(row) for row in examples]
    shown = [text if len(text) <= _SHOWN_CHARACTERS_MAX else text[: _SHOWN_CHARACTERS_MAX - 1] + "…" for text in shown]
    return InvalidRequest(f"{said}; for example {'; '.join(shown)}", public=said, step=step.label, rows=count)


def keep_aside(handles: Handles, name: str, judgement: Judged) -> tuple[int, str | None]:
    """How many rows were set aside into the target's quarantine, and where."""
    from lithify.spark.transforms import FAILED, write_set_aside

    aside = judgement.aside
    if aside is None:
        return told(handles, set_aside(handles, name, ()))
    if not isinstance(aside, pa.Table):
        return told(handles, set_aside(handles, name, lambda folder: write_set_aside(aside, folder)))
    beside = [name for name in (FAILED, GIVEN) if name in aside.column_names]
    whys, records = aside.column(FAILED).to_pylist(), aside.drop_columns(beside).to_pylist()
    lines = [{"why": why, "record": dumps(row)} for why, row in zip(whys, records, strict=True)]
    return told(handles, set_aside(handles, name, lines))


def told(handles: Handles, said: Mapping[str, Any]) -> tuple[int, str | None]:
    """What a commit would say of records that were set aside, as a report says it."""
    return (said["quarantined"], str(handles.folder / said["quarantine"])) if said else (0, None)


def committed(
    step: Step,
    target: Seen,
    rows: pa.Table | DataFrame,
    checkpoint: Checkpoint,
    origin: str,
    facts: Mapping[str, Any],
    op_column: str | None = None,
    order: Sequence[str] = (),
) -> Commit:
    """Rows and how far the step has come, in one commit. One of this number that was there already is that of another
    run, and ours was not made. `order`: as `apply_batch` has it.
    """
    commit = apply_batch(
        target.table,
        rows,
        checkpoint=checkpoint,
        mode="update" if step.updates else "upsert" if target.schema.keyed else "append",
        op_column=op_column,
        null_keys=step.bad_records if step.envelope is not None else "fail",
        order=order,
        operation="pipeline",
        missing=step.missing,
        info={"detail": f"{step.label}: {origin}", "pipeline": {"step": step.label, "source": step.source, **facts}},
    )
    if commit.replayed:
        raise Conflict(
            f"step {step.label} was run by somebody else meanwhile, who was faster: nothing was written; run it again"
        )
    target.handles.runtime.store.step("pipeline.committed")
    return commit


# -- which rows of the target are gone


def check_keys(step: Step, judgement: Judged, key: Sequence[str], *, computed: bool) -> None:
    """Of an answer that is here, before its target is created: no nulls in the key, and where the target is
    `computed`, each key once.
    """
    if judgement.small is None or not key:
        return
    for name in key:
        bad = judgement.small.filter(pc.is_null(judgement.small.column(name)))
        if bad.num_rows:
            said = f"step {step.label}: {name!r}, of the key of {step.target}, is null in {plural(bad.num_rows, 'row')}"
            advice = f'filter them out, or expect that "{name} is not null", otherwise = "quarantine"'
            shown = dumps(bad.slice(0, 1).to_pylist()[0])
            raise InvalidRequest(
                f"{said}, for example {shown}; nothing was written: {advice}", public=f"{said}: {advice}"
            )
    if computed:
        keys_of_answer(step, judgement, key, judgement.small.num_rows)


def keys_of_answer(step: Step, judgement: Judged, key: Sequence[str], keys_max: int) -> pa.Table:
    """The keys that came out, each once: a key that comes out twice is refused."""
    from lithify.spark.micro_batch import fetched
    from lithify.spark.schemas import column_named
    from lithify.spark.transforms import keys_twice

    names = list(key)
    if judgement.small is not None:
        keys = judgement.small.select(names)
        counts = keys.group_by(names).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts.column("count_all"), 1)).select(names).slice(0, 1).to_pylist()
        if twice:
            raise key_twice(step, twice[0])
        return keys
    assert not isinstance(judgement.rows, pa.Table)
    if (found := keys_twice(judgement.rows, names)) is not None:
        raise key_twice(step, found)
    fetched_keys = fetched(judgement.rows.select(*map(column_named, names)), keys_max)
    if fetched_keys is None:
        raise InvalidRequest(
            f"step {step.label}: more than {keys_max:,} rows come out for the rows that changed: run it with --full"
        )
    return fetched_keys


def key_twice(step: Step, key: Mapping[str, Any]) -> InvalidRequest:
    said = f"step {step.label}: more than one row comes out for a key of {step.target}"
    advice = "group the query by the key, or name further key columns"
    return InvalidRequest(f"{said}, for example {dumps(key)}: {advice}", public=f"{said}: {advice}")


def gone_from(present: pa.Table, came_out: pa.Table, key: Sequence[str]) -> pa.Table:
    """Keys of the target that are there and did not come out again."""
    names = list(key)
    return anti_join(present.select(names), came_out.select(names).cast(present.select(names).schema), names)


def check_passed_through(step: Step, came_out: pa.Table, given: pa.Table) -> None:
    """Every row that comes out belongs to one that went in, by the columns of `given`."""
    names = given.column_names
    strangers = anti_join(came_out.select(names), given.cast(came_out.select(names).schema), names)
    if strangers.num_rows:
        said = f"step {step.label}: a row comes out whose {', '.join(names)} none of the rows that went in has"
        advice = "pass these columns through as they are, or say full = true"
        shown = dumps(strangers.slice(0, 1).to_pylist()[0])
        raise InvalidRequest(f"{said} ({shown}): {advice}", public=f"{said}: {advice}")
