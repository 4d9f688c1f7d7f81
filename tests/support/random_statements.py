"""Random statements that write to shop.t, beside shop.s. Comments, line ends and capitals stand where SQL lets them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from support.random_sql import BLANK, Expressions, Ref

_NOISE = (" ", " ", " ", " ", " ", "\n", "  ", "\t", " /* or and values (1) */ ", " -- it's default\n", "\r\n")


class Statements(Expressions):
    # -- rows

    def cell(self, column: str) -> str:
        kind, r = self.shape.columns[column], self.random
        null = 0.15 if column in self.shape.nullable else 0.004
        if column == "id":
            return str(r.randrange(self.ids))
        if column in self.shape.key:
            return self.constant(kind, null=0.004)
        return self.constant(kind, null=null)

    def row(self, columns: Sequence[str], *, default: bool = True) -> str:
        cells = []
        for column in columns:
            roll = self.random.random()
            if default and roll < 0.06 and (column in self.shape.nullable or column in self.shape.defaults):
                cells.append("default")
            elif roll < 0.10 and default and column not in self.shape.key and self.shape.columns[column] == "int":
                cells.append("(select max(s.n) from shop.s as s)")
            elif roll < 0.16 and column not in self.shape.key:
                cells.append(
                    self.value(self.shape.columns[column], [], 1)
                    if column in self.shape.nullable
                    else self.cell(column)
                )
            else:
                cells.append(self.cell(column))
        return f"({', '.join(cells)})"

    def plain_row(self, columns: Sequence[str]) -> str:
        return f"({', '.join(self.cell(column) for column in columns)})"

    def values(self, columns: Sequence[str], *, default: bool = True) -> str:
        r = self.random
        many = r.choice([1, 2, 3, 6, 20, 40])
        make = (
            self.plain_row
            if r.random() < 0.5 or (many > 6 and r.random() < 0.8)
            else lambda some: self.row(some, default=default)
        )
        rows = [make(columns) for _ in range(many)]
        if r.random() < 0.8 and self.shape.key:
            at = [columns.index(name) for name in self.shape.key]
            distinct = {tuple(_cells(row)[place] for place in at): row for row in rows}
            rows = list(distinct.values())
        return "values " + ", ".join(rows)

    def some_columns(self) -> list[str]:
        must = [
            name
            for name in self.shape.columns
            if name in self.shape.key or (name not in self.shape.nullable and name not in self.shape.defaults)
        ]
        others = [name for name in self.shape.columns if name not in must]
        found = must + self.random.sample(others, self.random.randint(0, len(others)))
        self.random.shuffle(found)
        return found

    def assignments(self, refs: Sequence[Ref], target: str = "") -> str:
        r = self.random
        columns = [name for name in self.shape.columns if name not in self.shape.key]
        parts = []
        for name in r.sample(columns, r.choice([1, 1, 2, 3, min(6, len(columns))])):
            kind = self.shape.columns[name]
            default = r.random() < 0.08 and (name in self.shape.nullable or name in self.shape.defaults)
            value = "default" if default and target != "merge" else self.value(kind, refs, 2)
            parts.append(f"{name} = {value}")
        return ", ".join(parts)

    # -- statements

    def statement(self) -> str:
        kinds = [
            self.insert,
            self.insert_select,
            self.update,
            self.update,
            self.update_by_key,
            self.delete,
            self.delete_by_key,
        ]
        if self.shape.key:
            kinds += [
                self.on_conflict,
                self.on_conflict,
                self.update_from,
                self.delete_using,
                self.merge,
                self.merge,
                self.merge,
            ]
        return self.noisy(self.random.choice(kinds)())

    def insert(self) -> str:
        columns = list(self.shape.columns) if self.random.random() < 0.5 else self.some_columns()
        named = f" ({', '.join(columns)})" if columns != list(self.shape.columns) or self.random.random() < 0.5 else ""
        return f"insert into shop.t{named} {self.values(columns)}"

    def insert_select(self) -> str:
        columns = self.some_columns()
        by = self.random.choice([0, self.ids, 1])
        self.ids += self.random.choice([0, 1])
        values = [f"t.id + {by}" if name == "id" else f"t.{name}" for name in columns]
        refs = self.refs("t")
        return (
            f"insert into shop.t ({', '.join(columns)}) select {', '.join(values)} from shop.t as t "
            f"where {self.condition(refs)}"
        )

    def on_conflict(self) -> str:
        columns = list(self.shape.columns) if self.random.random() < 0.5 else self.some_columns()
        key = f"({', '.join(self.shape.key)})"
        refs = self.refs("t") + [(f"excluded.{name}", self.shape.columns[name]) for name in self.shape.columns]
        self.asks = False  # DuckDB takes no subqueries there
        where = f" where {self.condition(refs)}" if self.random.random() < 0.4 else ""
        how = self.random.choice(
            ["do nothing", f"{key} do nothing", f"{key} do update set {self.assignments(refs)}{where}"]
            + [f"{key} do update set {self.assignments(refs)}{where}"] * 3
        )
        self.asks = True
        return f"insert into shop.t ({', '.join(columns)}) {self.values(columns)} on conflict {how}"

    def by_key(self, ref: str = "") -> str:
        if not self.shape.key:
            return self.condition(self.refs(ref))
        r, names = self.random, list(self.shape.key)
        r.shuffle(names)
        test = " and ".join(self.one_of(name, ref) for name in names[: r.choice([1, len(names)])])
        more = self.condition(self.refs(ref), 2)
        return r.choice(
            [
                test,
                f"{test} and {more}",
                f"{more} and {test}",
                f"({more}) and {test} and {self.condition(self.refs(ref), 1)}",
                f"{test} or {more}",
            ]
        )

    def one_of(self, name: str, ref: str) -> str:
        """A column beside constants."""
        r, kind = self.random, self.shape.columns[name]
        text = f"{ref}.{name}" if ref else name
        some = ", ".join(self.constant(kind, null=0.01) for _ in range(r.choice([1, 3, 20])))
        return r.choice([f"{text} = {self.constant(kind, null=0)}", f"{text} in ({some})"])

    def update(self) -> str:
        where = f" where {self.condition(self.refs())}" if self.random.random() < 0.9 else ""
        return f"update shop.t set {self.assignments(self.refs())}{where}"

    def update_by_key(self) -> str:
        alias = self.random.choice(["", "u"])
        named = " as u" if alias else ""
        return f"update shop.t{named} set {self.assignments(self.refs(alias))} where {self.by_key(alias)}"

    def delete(self) -> str:
        return f"delete from shop.t where {self.condition(self.refs())} and {self.condition(self.refs())}"

    def delete_by_key(self) -> str:
        alias = self.random.choice(["", "d"])
        return f"delete from shop.t{' as d' if alias else ''} where {self.by_key(alias)}"

    def same(self, left: str, right: str) -> str:
        return " and ".join(f"{left}.{name} = {right}.{name}" for name in self.shape.key)

    def one_each(self) -> str:
        """The rows of `s`, one for each key."""
        others = [name for name in self.shape.columns if name not in self.shape.key]
        shown = ", ".join([*self.shape.key, *(f"max({name}) as {name}" for name in others)])
        return f"(select {shown} from shop.s group by {', '.join(self.shape.key)})"

    def update_from(self) -> str:
        refs = self.refs("t") + self.refs("s")
        return (
            f"update shop.t as t set {self.assignments(refs)} from {self.one_each()} as s "
            f"where {self.same('t', 's')} and ({self.condition(refs)})"
        )

    def delete_using(self) -> str:
        refs = self.refs("t") + self.refs("s")
        return f"delete from shop.t as t using shop.s as s where {self.same('t', 's')} and ({self.condition(refs)})"

    def merge(self) -> str:
        r, columns = self.random, list(self.shape.columns)
        source = r.choice(
            [
                f"({self.values(columns, default=False)}) as s({', '.join(columns)})",
                f"{self.one_each()} as s",
                f"(select * from shop.s as q where {self.condition(self.refs('q'))}) as s",
                f"(select * from shop.t as q where {self.condition(self.refs('q'))}) as s",
            ]
        )
        both, mine, theirs = self.refs("t") + self.refs("s"), self.refs("t"), self.refs("s")
        inserted = self.some_columns()
        listed = f"({', '.join(inserted)}) values ({', '.join(f's.{name}' for name in inserted)})"
        values = [
            self.value(self.shape.columns[name], theirs, 1) if name in self.shape.nullable else f"s.{name}"
            for name in inserted
        ]
        others = f"({', '.join(inserted)}) values ({', '.join(values)})"
        actions = {
            "matched": (
                both,
                [
                    "delete",
                    f"update set {self.assignments(both, 'merge')}",
                    "do nothing",
                    f"update set {self.assignments(both, 'merge')}",
                ],
            ),
            "not matched": (theirs, [f"insert {listed}", f"insert {others}", "do nothing"]),
            "not matched by source": (mine, ["delete", f"update set {self.assignments(mine, 'merge')}", "do nothing"]),
        }
        whens = []
        for side in r.sample(sorted(actions), r.randint(1, 3)):
            refs, can = actions[side]
            for _ in range(r.choice([0, 1, 2])):
                whens.append(f"when {side} and {self.condition(refs, 1)} then {r.choice(can)}")
            if r.random() < 0.6 or not whens:
                whens.append(f"when {side} then {r.choice(can)}")
        on = self.same("t", "s")
        if r.random() < 0.3:
            self.asks = False
            on += f" and {self.condition(both, 1)}"
            self.asks = True
        return f"merge into shop.t as t using {source} on {on} " + " ".join(whens)

    def noisy(self, text: str) -> str:
        r = self.random
        if r.random() < 0.4:
            text = re.sub(
                r"\b(and|or|is|not|from|values|set|in|null|when|where|distinct|update)\b",
                lambda m: m[0].upper() if r.random() < 0.5 else m[0],
                text,
            )
            return re.sub(" ", lambda _: r.choice(_NOISE), text).replace(BLANK, " ")
        return text.replace(BLANK, " ")


def _cells(row: str) -> list[str]:
    found, depth, start, quoted = [], 0, 1, False
    for at, c in enumerate(row):
        quoted ^= c == "'"
        if quoted:
            continue
        depth += (c == "(") - (c == ")")
        if (c == "," and depth == 1) or depth == 0:
            found.append(row[start:at].strip())
            start = at + 1
    return found
