"""Random programs of column changes between writes, folds, compactions and looks at the past, against plain dicts.

The dicts know each column by a number of its own, whatever it is called and whatever was called so before, and so each
field of a struct. Base is read by deltalake, which knows nothing of Lithify.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lithify import Lake, Settings, Table
from lithify.core.type_text import parse_type
from support.background import merge_changes
from support.effort import examples

NAMES = ("a", "b", "c", "d")
WIDER = {"int8": "int16", "int16": "int32", "int32": "int64", "float32": "float64", "decimal(4,2)": "decimal(9,4)"}
TYPES = (*WIDER, "int64", "string")
SETTINGS = Settings(pack_files_min=2, minor_files_min=2, cache_bytes_max=2**24)

Row = dict[int, Any]
# A type by its name, or the fields of a struct: number, name and type of each.
Kind = str | tuple[tuple[int, str, Any], ...]


@dataclass(frozen=True)
class State:
    """Columns by their number, in order, and rows by key, which have values by the same numbers; so have defaults."""

    columns: tuple[tuple[int, str, Kind], ...] = ()
    rows: dict[int, Row] = field(default_factory=dict)
    defaults: dict[int, Any] = field(default_factory=dict)

    def named(self, rows: dict[int, Row] | None = None) -> list[dict[str, Any]]:
        found = self.rows if rows is None else rows
        return [
            {"id": key, **{name: shown(found[key].get(number), kind) for number, name, kind in self.columns}}
            for key in sorted(found)
        ]

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.columns]


def arrow_type(kind: Kind) -> pa.DataType:
    if isinstance(kind, str):
        return parse_type(kind)
    return pa.struct([pa.field(name, arrow_type(inner)) for _, name, inner in kind])


def shown(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if not isinstance(kind, str):
        return {name: shown(value.get(number), inner) for number, name, inner in kind}
    given = Decimal(value) if kind.startswith("decimal") else value
    return pa.scalar(given, pa.string() if kind == "string" else None).cast(parse_type(kind)).as_py()


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


class Program:
    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.path, self.said = path, [f"seed {seed}"]
        self.lakes = [Lake(path, settings=SETTINGS), Lake(path, settings=SETTINGS)]
        self.numbers = iter(range(1, 1000))
        kinds: list[Kind] = [*TYPES[:2], ((next(self.numbers), "a", "string"), (next(self.numbers), "b", "int64"))]
        self.state = State(tuple((next(self.numbers), name, kind) for name, kind in zip("abc", kinds, strict=True)))
        columns = [pa.field("id", pa.int64()), *(pa.field(n, arrow_type(kind)) for _, n, kind in self.state.columns)]
        self.lakes[0].create_table("s.t", pa.schema(columns), key="id", options={"missing_columns": "null"})
        self.past: dict[int, State] = {self.table.snapshot().seq: self.state}

    @property
    def table(self) -> Table:
        return self.random.choice(self.lakes).table("s.t")

    def run(self, steps: int) -> None:
        operations: list[Callable[[], None]] = [
            *(self.upsert, self.upsert, self.update, self.delete),
            *(self.rename, self.drop, self.add, self.widen, self.move, self.default),
            *(self.add_field, self.rename_field, self.drop_field),
            *(self.fold, self.compact, self.merge, self.optimize, self.pin, self.restore),
        ]
        for _ in range(steps):
            self.random.choice(operations)()
            # A column that is added has no seq of its own: as of the last write it is not there.
            self.past.setdefault(self.table.snapshot().seq, self.state)
            self.check()
        for lake in self.lakes:
            lake.close()

    def say(self, what: str) -> None:
        self.said.append(what)

    def value(self, kind: Kind) -> Any:
        if self.random.random() < 0.2:
            return None
        if not isinstance(kind, str):
            return {number: self.value(inner) for number, _, inner in kind}
        if kind == "string":
            return self.random.choice(["x", "yy", ""])
        return self.random.randint(-90, 90)

    def given(self, some: bool) -> Row:
        columns = [c for c in self.state.columns if not some or self.random.random() < 0.5]
        return {number: self.value(kind) for number, _, kind in columns}

    def called(self, key: int, row: Row) -> dict[str, Any]:
        return {"id": key, **{n: shown(row[number], kind) for number, n, kind in self.state.columns if number in row}}

    # -- rows

    def upsert(self) -> None:
        keys = self.random.sample(range(12), self.random.randint(1, 4))
        written = {key: self.given(some=False) for key in keys}
        for row in written.values():  # each leaves out some of what has a default
            for number in self.state.defaults:
                if self.random.random() < 0.5:
                    row.pop(number, None)
        self.say(f"upsert {written}")
        self.table.upsert([self.called(key, row) for key, row in written.items()])
        whole = {key: {**self.state.defaults, **row} for key, row in written.items()}
        self.state = replace(self.state, rows={**self.state.rows, **whole})

    def update(self) -> None:
        key, row = self.random.randrange(12), self.given(some=True)
        self.say(f"update {key} {row}")
        self.table.update([self.called(key, row)])
        self.state = replace(self.state, rows={**self.state.rows, key: {**self.state.rows.get(key, {}), **row}})

    def delete(self) -> None:
        key = self.random.randrange(12)
        self.say(f"delete {key}")
        self.table.delete([key])
        self.state = replace(self.state, rows={k: row for k, row in self.state.rows.items() if k != key})

    def restore(self) -> None:
        seq = self.random.choice(sorted(self.past))
        self.say(f"restore {seq}")
        self.table.restore(seq)
        there = {number for number, _, _ in self.state.columns}
        then = {key: {n: v for n, v in row.items() if n in there} for key, row in self.past[seq].rows.items()}
        self.state = replace(self.state, rows=then)

    # -- columns

    def free(self) -> list[str]:
        return [name for name in NAMES if name not in self.state.names]

    def rename(self) -> None:
        if not self.free() or not self.state.columns:
            return
        at, name = self.random.randrange(len(self.state.columns)), self.random.choice(self.free())
        number, old, kind = self.state.columns[at]
        self.say(f"rename {old} {name}")
        self.table.rename_column(old, name)
        columns = list(self.state.columns)
        columns[at] = number, name, kind
        self.state = replace(self.state, columns=tuple(columns))

    def drop(self) -> None:
        if not self.state.columns:
            return
        gone = self.random.choice(self.state.columns)
        self.say(f"drop {gone}")
        self.table.drop_column(gone[1])
        defaults = {number: value for number, value in self.state.defaults.items() if number != gone[0]}
        columns = tuple(c for c in self.state.columns if c != gone)
        self.state = replace(self.state, columns=columns, defaults=defaults)

    def add(self) -> None:
        if self.free():
            name, kind = self.random.choice(self.free()), self.kind()
            number, value = next(self.numbers), self.value(kind) if isinstance(kind, str) else None
            self.say(f"add {name} {kind} default {value!r}")
            self.table.add_column(pa.field(name, arrow_type(kind)), default=shown(value, kind))
            self.state = replace(self.state, columns=(*self.state.columns, (number, name, kind)))
            self._has_default(number, value)

    def kind(self) -> Kind:
        if self.random.random() < 0.7:
            return self.random.choice(TYPES)
        names = self.random.sample(NAMES, 2)
        deep = ((next(self.numbers), "x", "int64"), (next(self.numbers), "y", "string"))
        return (next(self.numbers), names[0], "string"), (next(self.numbers), names[1], deep)

    def struct(self) -> tuple[str, tuple[tuple[int, str, Any], ...], Callable[[Any], None]] | None:
        """The path of some struct, its fields, and how the state is told others."""
        found = []
        for at, (number, name, kind) in enumerate(self.state.columns):
            if isinstance(kind, str):
                continue

            def tell(fields: Any, at: int = at, number: int = number, name: str = name) -> None:
                columns = list(self.state.columns)
                columns[at] = number, name, tuple(fields)
                self.state = replace(self.state, columns=tuple(columns))

            found.append((name, kind, tell))
            for place, (inner, called, deeper) in enumerate(kind):
                if isinstance(deeper, str):
                    continue

                def deep(
                    fields: Any,
                    tell: Callable[[Any], None] = tell,
                    kind: Any = kind,
                    place: int = place,
                    inner: int = inner,
                    called: str = called,
                ) -> None:
                    tell((*kind[:place], (inner, called, tuple(fields)), *kind[place + 1 :]))

                found.append((f"{name}.{called}", deeper, deep))
        return self.random.choice(found) if found else None

    def add_field(self) -> None:
        if (struct := self.struct()) is None:
            return
        path, fields, tell = struct
        if free := [name for name in NAMES if name not in [called for _, called, _ in fields]]:
            name, kind = self.random.choice(free), self.kind()
            self.say(f"add {path}.{name} {kind}")
            self.table.add_column(pa.field(f"{path}.{name}", arrow_type(kind)))
            tell((*fields, (next(self.numbers), name, kind)))

    def rename_field(self) -> None:
        if (struct := self.struct()) is None:
            return
        path, fields, tell = struct
        if free := [name for name in NAMES if name not in [called for _, called, _ in fields]]:
            at, name = self.random.randrange(len(fields)), self.random.choice(free)
            number, old, kind = fields[at]
            self.say(f"rename {path}.{old} {name}")
            self.table.rename_column(f"{path}.{old}", name)
            tell((*fields[:at], (number, name, kind), *fields[at + 1 :]))

    def drop_field(self) -> None:
        struct = self.struct()
        if struct is not None and len(struct[1]) > 1:
            path, fields, tell = struct
            gone = self.random.choice(fields)
            self.say(f"drop {path}.{gone[1]}")
            self.table.drop_column(f"{path}.{gone[1]}")
            tell(field for field in fields if field != gone)

    def default(self) -> None:
        plain = [column for column in self.state.columns if isinstance(column[2], str)]
        if plain:
            number, name, kind = self.random.choice(plain)
            value = self.value(kind)
            self.say(f"default of {name}: {value!r}")
            self.table.alter_column(name, default=shown(value, kind))
            self._has_default(number, value)

    def _has_default(self, number: int, value: Any) -> None:
        others = {known: default for known, default in self.state.defaults.items() if known != number}
        self.state = replace(self.state, defaults=others if value is None else {**others, number: value})

    def widen(self) -> None:
        narrow = [column for column in self.state.columns if column[2] in WIDER]
        if narrow:
            chosen = self.random.choice(narrow)
            self.say(f"widen {chosen}")
            self.table.alter_column(chosen[1], type=WIDER[chosen[2]])
            wider = (*chosen[:2], WIDER[chosen[2]])
            self.state = replace(self.state, columns=tuple(wider if c == chosen else c for c in self.state.columns))

    def move(self) -> None:
        if len(self.state.columns) > 1:
            chosen, behind = self.random.sample(self.state.columns, 2)
            self.say(f"move {chosen} {behind}")
            self.table.alter_column(chosen[1], after=behind[1])
            rest = [column for column in self.state.columns if column != chosen]
            rest.insert(rest.index(behind) + 1, chosen)
            self.state = replace(self.state, columns=tuple(rest))

    # -- work that changes no row

    def fold(self) -> None:
        self.say("fold")
        self.table.fold()

    def compact(self) -> None:
        self.say("compact")
        self.table.compact()

    def merge(self) -> None:
        self.say("merge changes")
        merge_changes(self.table)

    def optimize(self) -> None:
        self.say("optimize")
        self.table.optimize()

    def pin(self) -> None:
        self.say("pin")
        self.lakes[0].cache.pin("s.t")

    # -- what must hold

    def check(self) -> None:
        said = "; ".join(self.said)
        for lake in self.lakes:
            table = lake.table("s.t")
            found = table.to_arrow()
            assert found.column_names == ["id", *self.state.names], said
            assert ordered(found) == self.state.named(), said
            counted = lake.sql("select count(*) as n from s.t").to_pylist()
            assert counted == [{"n": len(self.state.rows)}], said
        for number, name, kind in [column for column in self.state.columns if isinstance(column[2], str)][:1]:
            value = shown(next((r[number] for r in self.state.rows.values() if r.get(number) is not None), None), kind)
            if value is not None:
                there = sum(row[name] == value for row in self.state.named())
                spelled = f"'{value}'" if kind == "string" else f"{value}"
                assert self.table.count(f'"{name}" = {spelled}') == there, said
        key = self.random.randrange(12)
        row = self.table.get(key)
        assert [row] == (self.state.named({key: self.state.rows[key]}) if key in self.state.rows else [None]), said
        self.check_past(said)
        self.check_feed(said)
        self.check_base(said)

    def check_past(self, said: str) -> None:
        seq = self.random.choice(sorted(self.past))
        then, found = self.past[seq], self.table.to_arrow(as_of=seq)
        assert sorted(found.column_names) == sorted(["id", *then.names]), f"{said}; as of {seq}"
        assert ordered(found) == then.named(), f"{said}; as of {seq}"

    def check_feed(self, said: str) -> None:
        """Rows of then, in the columns of now, become those of now."""
        seq = self.random.choice(sorted(self.past))
        rows = {row["id"]: row for row in self.state.named(self.past[seq].rows)}
        for change in self.table.feed(seq, before=self.random.random() < 0.5).to_pylist():
            kind, _ = change.pop("_kind"), change.pop("_seq")
            if kind == "update_before":
                assert rows[change["id"]] == change, f"{said}; feed since {seq}"
            elif kind == "delete":
                assert rows.pop(change["id"]) == change, f"{said}; feed since {seq}"
            else:
                rows[change["id"]] = change
        assert [rows[key] for key in sorted(rows)] == self.state.named(), f"{said}; feed since {seq}"

    def check_base(self, said: str) -> None:
        """As another engine reads it: rows of the last fold, in the columns of now."""
        watermark = self.table.snapshot().watermark
        seq = max(known for known in self.past if known <= watermark)
        base = deltalake.DeltaTable(str(self.table.base_path))
        assert not base.metadata().configuration.get("delta.columnMapping.mode"), said
        found = pa.table(base.to_pyarrow_table())
        assert found.column_names == ["id", *self.state.names], said
        assert ordered(found) == self.state.named(self.past[seq].rows), said


@pytest.mark.parametrize("seed", range(examples(6, soak=400)))
def test_columns_change_between_everything_else(folder: Path, seed: int) -> None:
    Program(folder / "lake", seed).run(25)
