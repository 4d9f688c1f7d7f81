"""The same random statements on two lakes: one looks up the rows whose keys a statement names, as it does, and one is
made to ask the engine for all of them. Both have the same rows, and count and refuse the same.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from lithify import Executed, Lake, LithifyError
from lithify.dml import attempt, decide
from support.random_sql import BLANK, Shape, shape
from support.random_statements import Statements
from support.wide_programs import ARROW, rows_of


class Spelled(Statements):
    """Statements by key, whose constants are written in every way, also of other types."""

    def constant(self, kind: str, *, null: float = 0.12) -> str:
        text, r = super().constant(kind, null=null), self.random
        if text == "null" or r.random() < 0.6:
            return text
        match kind:
            case "int" | "small":
                return r.choice(
                    [f"{text}.0", f"{text}.5", f"{text}e0", f"(0 + {text})", f"{text}00000000000", f"'{text}'"]
                )
            case "text":
                return r.choice([f"({text})", f"{text} || ''", f"cast({text} as varchar)"])
            case "dec":
                return r.choice([f"cast({text} as decimal(12,2))", f"(0 + {text})", f"{text}e0"])
            case "date":
                return r.choice([text.removeprefix(f"date{BLANK}"), f"cast({text} as timestamp)", f"({text})"])
            case "ts":
                plain = text.removeprefix(f"timestamp{BLANK}")
                return r.choice([plain, plain.replace(f"{BLANK}", "T"), f"cast({text} as date)", f"({text})"])
        return text

    def statement(self) -> str:
        kinds = [self.update_by_key, self.update_by_key, self.delete_by_key, self.merge, self.on_conflict, self.insert]
        return self.noisy(self.random.choice(kinds)())


class TwoWays:
    def __init__(self, lakes: tuple[Lake, Lake], seed: int, patch: pytest.MonkeyPatch) -> None:
        self.lakes, self.random, self.patch = lakes, random.Random(seed), patch
        made = shape(self.random)
        while not made.key:
            made = shape(self.random)
        if self.random.random() < 0.2:
            made.columns["amount"], made.key = "dec", ["amount"]
            made.nullable.discard("amount")
            made.defaults.pop("amount", None)
            made.options = {}
        self.shape, self.program = made, Spelled(self.random, made)
        self.looked_up = 0
        for name in ("t", "s"):
            self._create(name)
        for name in ("s", "t"):
            rows = self.program.values(list(made.columns), default=False).replace(BLANK, " ")
            self.both(
                f"insert into shop.{name} {rows} on conflict do nothing"
                if name == "t"
                else f"insert into shop.{name} {rows}"
            )

    def _create(self, name: str) -> None:
        made: Shape = self.shape
        schema = pa.schema([pa.field(c, ARROW[kind], nullable=c in made.nullable) for c, kind in made.columns.items()])
        more = {**made.options, "key": made.key} if name == "t" else {}
        for lake in self.lakes:
            lake.create_table(f"shop.{name}", schema, defaults=made.defaults or None, **more)

    def both(self, text: str) -> tuple[Any, Any]:
        look = decide.named_keys

        def counted(*given: Any) -> Any:
            found = look(*given)
            self.looked_up += found is not None
            return found

        with self.patch.context() as short:
            short.setattr(decide, "named_keys", counted)
            first = _tried(self.lakes[0], text)
        with self.patch.context() as general:
            general.setattr(decide, "named_keys", lambda *given: None)
            general.setattr(attempt, "_keys_of", lambda *given: None)
            return first, _tried(self.lakes[1], text)

    def step(self) -> bool:
        """Whether a statement was taken."""
        roll = self.random.random()
        if roll < 0.25:
            for lake in self.lakes:
                lake.table("shop.t").fold()
            return False
        text = self.program.statement()
        first, second = self.both(text)
        assert _told(first) == _told(second), f"{text}\n{first}\n{second}"
        mine, theirs = (rows_of(lake.table("shop.t").to_arrow()) for lake in self.lakes)
        assert mine == theirs, (
            f"{text}\n{[row for row in mine if row not in theirs]}\n{[row for row in theirs if row not in mine]}"
        )
        return isinstance(first, Executed)


def _tried(lake: Lake, text: str) -> Any:
    try:
        return lake.execute(text)
    except LithifyError as error:
        return error


def _told(answer: Any) -> Any:
    if isinstance(answer, Executed):
        return answer.inserted, answer.updated, answer.deleted
    return type(answer)


def run(lakes: tuple[Lake, Lake], seed: int, steps: int, patch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many statements were taken, and of how many the rows were looked up: it goes on until there are some."""
    ways, taken = TwoWays(lakes, seed, patch), 0
    for number in range(10 * steps):
        if number >= steps and ways.looked_up:
            break
        try:
            taken += ways.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}, {ways.shape}: {error}") from error
    return taken, ways.looked_up
