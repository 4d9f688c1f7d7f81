"""Random tables, and values and conditions over their columns, in words that the engine and DuckDB both understand."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

DUCK = {
    "int": "bigint",
    "small": "integer",
    "text": "varchar",
    "dec": "decimal(12,2)",
    "bool": "boolean",
    "date": "date",
    "ts": "timestamp",
    "double": "double",
}
# A blank within a text constant, which no comment takes the place of.
BLANK = "\x01"
_TEXTS = (
    "a",
    "b",
    "it''s",
    "",
    f"--{BLANK}no",
    f"/*{BLANK}x{BLANK}*/",
    "ünï",
    f"A{BLANK}b",
    "''",
    "%_",
    "default",
    "NULL",
    ";",
)
_DATES = ("2026-01-02", "1999-12-31", "1969-07-20", "2026-11-19")
_TIMES = ("2026-01-02 03:04:05.000006", "1999-12-31 23:59:59", "1969-07-20 20:17:40", "2026-11-19 00:00:00")
Ref = tuple[str, str]  # an expression that names a column, and its kind


@dataclass
class Shape:
    columns: dict[str, str]
    key: list[str]
    nullable: set[str]
    defaults: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def shape(rnd: random.Random) -> Shape:
    key: list[str] = rnd.choice([["id"]] * 5 + [["id", "code"], ["day", "id"], ["code"], ["seen"], ["day"], [], []])
    kinds = {"id": rnd.choice(["int", "small"]), "code": "text", "n": "int", "m": "small", "name": "text"}
    kinds |= {"amount": "dec", "ok": "bool", "day": "date", "seen": "ts"}
    if key:
        kinds["x"] = "double"
    names = list(kinds)
    rnd.shuffle(names)
    kinds = {name: kinds[name] for name in names}
    plain = [name for name in kinds if name not in key]
    found = Shape(kinds, key, {name for name in plain if rnd.random() < 0.85})
    for name in rnd.sample(plain, rnd.choice([0, 0, 1, 3])):
        found.defaults[name] = _python(rnd, kinds[name])
    if rnd.random() < 0.35:
        found.options["partition_by"] = rnd.choice([c for c in ("code", "day", "m", "ok") if c in kinds])
    if key and rnd.random() < 0.25:
        found.options["order_by"] = rnd.choice([c for c in ("seen", "n") if c not in key])
        found.nullable.discard(found.options["order_by"])
        found.defaults.pop(found.options["order_by"], None)
    elif key and rnd.random() < 0.25:
        rules = {"n": "sum", "m": "max", "name": "last_non_null", "ok": "or", "amount": "min", "seen": "first"}
        used = set(key) | {found.options.get("partition_by")}
        found.options["merge_rules"] = {c: rules[c] for c in rnd.sample(sorted(rules), 3) if c not in used}
        for name in found.options["merge_rules"]:
            found.nullable.add(name)
            found.defaults.pop(name, None)
    return found


def _python(rnd: random.Random, kind: str) -> Any:
    match kind:
        case "int" | "small":
            return rnd.choice([-3, 0, 7, 12])
        case "text":
            return rnd.choice(["dflt", "it's", ""])
        case "dec":
            return rnd.choice([Decimal("1.50"), Decimal("-0.01")])
        case "bool":
            return rnd.random() < 0.5
        case "date":
            return dt.date.fromisoformat(rnd.choice(_DATES))
        case "ts":
            return dt.datetime.fromisoformat(rnd.choice(_TIMES))
    return rnd.choice([0.5, -2.25])


class Expressions:
    """Values and conditions of any depth, over columns that they are told."""

    def __init__(self, rnd: random.Random, made: Shape) -> None:
        self.random, self.shape = rnd, made
        self.ids = 24
        # Whether a condition may hold a subquery: within values the engine knows none but single ones.
        self.asks = True

    # -- values

    def constant(self, kind: str, *, null: float = 0.12) -> str:
        r = self.random
        if r.random() < null:
            return "null"
        match kind:
            case "int" | "small":
                return str(r.choice([0, 1, 2, 3, 7, 12, -1, -3, r.randint(0, self.ids)]))
            case "text":
                return f"'{r.choice(_TEXTS)}'"
            case "dec":
                return r.choice(["0", "12.30", "-7.05", "99999.99", "5", "0.01", "-1", "1.5"])
            case "bool":
                return r.choice(["true", "false"])
            case "date":
                return f"date{BLANK}'{r.choice(_DATES)}'"
            case "ts":
                return f"timestamp{BLANK}'{r.choice(_TIMES).replace(' ', BLANK)}'"
        return r.choice(["0.5", "-2.25", "3", "1024.125"])

    def value(self, kind: str, refs: Sequence[Ref], depth: int = 2) -> str:
        r = self.random
        fitting = [text for text, of in refs if of == kind]
        if depth <= 0 or r.random() < 0.25:
            return r.choice(fitting) if fitting and r.random() < 0.6 else self.constant(kind)

        def sub(other: str = kind) -> str:
            return self.value(other, refs, depth - 1)

        asked, self.asks = self.asks, False

        made = [
            lambda: f"coalesce({sub()}, {self.constant(kind, null=0)})",
            lambda: f"case when {self.condition(refs, depth - 1)} then {sub()} else {sub()} end",
            lambda: f"case {' '.join(f'when {self.condition(refs, depth - 1)} then {sub()}' for _ in range(2))} end",
            lambda: f"nullif({sub()}, {self.constant(kind, null=0)})",
            lambda: f"({sub()})",
        ]
        match kind:
            case "int" | "small":
                made += [
                    lambda: f"{sub()} + {r.randint(0, 5)}",
                    lambda: f"{sub()} - {r.randint(0, 5)}",
                    lambda: f"-({sub()})",
                    lambda: f"cast(length({sub('text')}) as {DUCK[kind]})",
                ]
            case "text":
                made += [
                    lambda: f"{sub()} || {sub()}",
                    lambda: f"upper({sub()})",
                    lambda: f"cast({sub('int')} as varchar)",
                ]
            case "dec":
                made += [lambda: f"{sub()} + 1.25", lambda: f"-({sub()})", lambda: f"{sub()} - 3"]
            case "bool":
                made += [lambda: f"({self.condition(refs, depth - 1)})"]
            case "double":
                made += [lambda: f"{sub()} + 1", lambda: f"-({sub()})"]
        try:
            return r.choice(made)()
        finally:
            self.asks = asked

    def condition(self, refs: Sequence[Ref], depth: int = 2) -> str:
        r = self.random
        if not refs:
            return f"{self.constant('int')} {r.choice(['<', '=', 'is distinct from'])} {self.constant('int')}"
        text, kind = r.choice(list(refs))
        if r.random() < 0.35:
            keys = [ref for ref in refs if ref[0].split(".")[-1] in self.shape.key] or list(refs)
            text, kind = r.choice(keys)
        c = lambda null=0.05: self.constant(kind, null=null)  # noqa: E731
        if depth > 0 and r.random() < 0.55:
            a, b = self.condition(refs, depth - 1), self.condition(refs, depth - 1)
            return r.choice(
                [
                    f"{a} and {b}",
                    f"{a} and {b}",
                    f"{a} or {b}",
                    f"({a} or {b})",
                    f"({a}) and ({b})",
                    f"not ({a}) and {b}",
                    f"not {self.simple(text, kind, c)} or {b}",
                    f"case when {a} then {b} else {self.simple(text, kind, c)} end",
                    f"(({a}) is not true) and {b}",
                    f"coalesce(({a}), false)",
                ]
            )
        return self.simple(text, kind, c)

    def simple(self, text: str, kind: str, c: Callable[..., str]) -> str:
        r = self.random
        some = ", ".join(c(0.03) for _ in range(r.choice([1, 2, 5, 18])))
        if kind == "bool" and r.random() < 0.5:
            return r.choice([text, f"not {text}", f"{text} is true", f"{text} is not false"])
        least = c(0)
        made = [
            f"{text} = {c()}",
            f"{text} = {c()}",
            f"{text} <> {c()}",
            f"{text} in ({some})",
            f"{text} in ({some})",
            f"{text} not in ({some})",
            f"{text} is null",
            f"{text} is not null",
            f"{text} is distinct from {c()}",
            f"{text} is not distinct from {c(0.2)}",
            f"{c(0.2)} is not distinct from {text}",
            f"not {text} is distinct from {c()}",
        ]
        if kind != "bool":
            made += [
                f"{text} < {c()}",
                f"{text} >= {c()}",
                f"{c()} > {text}",
                f"{text} between {least} and {c()}",
                f"{text} not between {least} and {c()}",
            ]
        if kind != "bool" and self.asks:
            known = f"s.n > 1 and s.{self.of_kind(kind)} is not null"
            made += [
                f"{text} in (select s.{self.of_kind(kind)} from shop.s as s where {known})",
                f"exists (select 1 from shop.s as s where s.{self.of_kind(kind)} = {text})",
            ]
        if kind == "text":
            made += [f"{text} like '%{r.choice(['a', 't', '-', '_'])}%'", f"length({text}) > 2"]
        return r.choice(made)

    def of_kind(self, kind: str) -> str:
        return self.random.choice([name for name, of in self.shape.columns.items() if of == kind])

    def refs(self, name: str = "") -> list[Ref]:
        return [(f"{name}.{column}" if name else column, kind) for column, kind in self.shape.columns.items()]
