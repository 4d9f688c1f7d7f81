"""What a Delta table demands of its rows is kept, or the table is refused: no fold breaks the rules of a base."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lithify import Conflict, InvalidRequest, Lake

COLUMNS = pa.schema(
    [("id", pa.int64()), ("amount", pa.int64()), ("place", pa.struct([("x", pa.int64()), ("y", pa.int64())]))]
)
ROWS = [{"id": 1, "amount": 5, "place": {"x": 1, "y": 2}}, {"id": 2, "amount": 6, "place": None}]
BROKEN = {"id": 3, "amount": -7, "place": None}


@pytest.fixture
def lake(folder: Path) -> Iterator[Lake]:
    with Lake(folder / "lake") as opened:
        yield opened


@pytest.fixture
def delta(folder: Path) -> Path:
    write_deltalake(folder / "d", pa.Table.from_pylist(ROWS, COLUMNS))
    return folder / "d"


def check(path: Path) -> None:
    DeltaTable(path).alter.add_constraint({"positive": "amount > 0"})


def append_only(path: Path) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})


def commit_schema(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """As another engine would change the columns: a commit with the table's metadata and a protocol that allows it."""
    first = (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    metadata = next(action["metaData"] for action in map(json.loads, first) if "metaData" in action)
    table = DeltaTable(path)
    fields = json.loads(table.schema().to_json())["fields"]
    change(fields)
    metadata["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    metadata["configuration"] = dict(table.metadata().configuration)
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, {"metaData": metadata}]
    commit = path / "_delta_log" / f"{table.version() + 1:020d}.json"
    commit.write_text("\n".join(map(json.dumps, actions)))


def note(name: str, value: Any, *steps: int) -> Callable[[Path], None]:
    def change(fields: list[dict[str, Any]]) -> None:
        field = fields[steps[0]]
        for inner in steps[1:]:
            field = field["type"]["fields"][inner]
        field["metadata"] = {name: value}

    return lambda path: commit_schema(path, change)


def not_null(path: Path) -> None:
    commit_schema(path, lambda fields: fields[1].update(nullable=False))


INVARIANT = json.dumps({"expression": {"expression": "amount > 0"}})
DEMANDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "append-only": (append_only, r"the property delta\.appendOnly \(rows in it cannot change\)"),
    "check": (check, r"the CHECK constraint positive \(amount > 0\)"),
    "invariant": (note("delta.invariants", INVARIANT, 1), r"an invariant of column 'amount' \(amount > 0\)"),
    "invariant inside": (note("delta.invariants", INVARIANT, 2, 1), r"an invariant of column 'place\.y'"),
    "generated": (note("delta.generationExpression", "id * 2", 1), r"the generated column 'amount' \(id \* 2\)"),
    "identity": (note("delta.identity.start", 1, 0), "the identity column 'id'"),
}


@pytest.mark.parametrize("demand", DEMANDS)
def test_a_table_that_demands_what_is_not_evaluated_is_not_adopted(lake: Lake, delta: Path, demand: str) -> None:
    make, named = DEMANDS[demand]
    make(delta)

    with pytest.raises(InvalidRequest, match=named):
        lake.adopt("a.t", delta, key="id")

    assert lake.tables() == []
    assert "lithify.owner" not in DeltaTable(delta).metadata().configuration


@pytest.mark.parametrize("demand", [*DEMANDS, "not null"])
def test_nothing_is_folded_into_a_base_that_demands_it_since(lake: Lake, delta: Path, demand: str) -> None:
    make, named = {**DEMANDS, "not null": (not_null, "NOT NULL on column 'amount'")}[demand]
    table = lake.adopt("a.t", delta, key="id")
    make(delta)
    table.upsert([BROKEN])

    with pytest.raises(Conflict, match=named):
        table.fold()

    with Lake(lake.path) as anew:
        assert anew.table("a.t").get(3) == BROKEN
        assert anew.sql("select count(*) c from a.t").to_pylist() == [{"c": 3}]
    assert sorted(DeltaTable(delta).to_pyarrow_table().column("id").to_pylist()) == [1, 2]


WRITES: dict[str, Callable[[Lake], object]] = {
    "upsert": lambda lake: lake.table("a.t").upsert([BROKEN]),
    "update": lambda lake: lake.table("a.t").update([{"id": 1, "amount": -9}]),
    "delete": lambda lake: lake.table("a.t").delete([1]),
    "UPDATE": lambda lake: lake.execute("UPDATE a.t SET amount = -9 WHERE id = 1"),
    "MERGE": lambda lake: lake.execute(
        "MERGE INTO a.t t USING (VALUES (2)) s(id) ON t.id = s.id WHEN MATCHED THEN DELETE"
    ),
    "many": lambda lake: lake.table("a.t").append(
        pa.RecordBatchReader.from_batches(COLUMNS, pa.Table.from_pylist([BROKEN], COLUMNS).to_batches())
    ),
}


@pytest.mark.parametrize("demand", [*DEMANDS, "not null"])
def test_nothing_is_written_once_base_is_known_to_demand_what_no_fold_takes(
    lake: Lake, delta: Path, demand: str
) -> None:
    make, named = {**DEMANDS, "not null": (not_null, "NOT NULL on column 'amount'")}[demand]
    table = lake.adopt("a.t", delta, key="id")
    make(delta)
    seq = table.snapshot().seq

    for write in WRITES.values():
        with pytest.raises(Conflict, match=f"nothing is written to table a.t.*{named}"):
            write(lake)
    with Lake(lake.path) as anew, pytest.raises(Conflict, match=named):
        anew.table("a.t").upsert([BROKEN])

    assert table.snapshot().seq == seq
    assert table.to_arrow().sort_by("id").to_pylist() == ROWS


def test_a_statement_is_refused_though_nobody_has_looked_at_the_base_before(lake: Lake, delta: Path) -> None:
    lake.adopt("a.t", delta, key="id")
    check(delta)
    with pytest.raises(Conflict, match="positive"):
        WRITES["UPDATE"](lake)


def test_a_demand_that_is_dropped_lets_writes_go_on(lake: Lake, delta: Path) -> None:
    table = lake.adopt("a.t", delta, key="id")
    check(delta)
    assert table.count() == 2
    with pytest.raises(Conflict, match="positive"):
        table.upsert([BROKEN])
    DeltaTable(delta).alter.drop_constraint("positive")

    table.upsert([BROKEN])
    table.fold()

    assert DeltaTable(delta).to_pyarrow_table().num_rows == 3


def test_a_batch_that_was_written_before_is_answered_as_then(lake: Lake, delta: Path) -> None:
    table = lake.adopt("a.t", delta, key="id")
    first = table.upsert([BROKEN], batch_id="b")
    check(delta)
    assert table.count() == 3
    assert table.upsert([BROKEN], batch_id="b").seq == first.seq


def test_a_demand_that_is_dropped_lets_folds_go_on(lake: Lake, delta: Path) -> None:
    table = lake.adopt("a.t", delta, key="id")
    check(delta)
    table.upsert([BROKEN])
    DeltaTable(delta).alter.drop_constraint("positive")

    table.fold()

    assert DeltaTable(delta).to_pyarrow_table().num_rows == 3


def test_a_demand_that_comes_while_a_fold_runs_stops_its_commit(folder: Path, delta: Path) -> None:
    from lithify.files.local import LocalStorage

    class Meanwhile(LocalStorage):
        act: Callable[[], None] | None = None

        def step(self, name: str) -> None:
            if name == "log.swap" and self.act is not None:
                act, self.act = self.act, None
                act()

    store = Meanwhile()
    with Lake(folder / "lake", store=store) as lake:
        table = lake.adopt("a.t", delta, key="id")
        table.upsert([BROKEN])
        store.act = lambda: check(delta)

        with pytest.raises(Conflict, match="positive"):
            table.fold()

        assert DeltaTable(delta).to_pyarrow_table().num_rows == 2


def test_columns_that_may_not_be_null_are_kept_so(lake: Lake, folder: Path) -> None:
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    write_deltalake(folder / "n", pa.table({"id": [1], "n": [1]}, schema=columns))
    table = lake.adopt("a.n", folder / "n", key="id")

    for row in ({"id": 2, "n": None}, {"id": 2}):
        with pytest.raises(InvalidRequest, match="column 'n'"):
            table.upsert([row])
    table.upsert([{"id": 2, "n": 2}])
    table.fold()

    assert DeltaTable(folder / "n").to_pyarrow_table().num_rows == 2
