"""Declared pipelines: what a declaration says, checked, and in which order its steps run.

A step reads one source (files, or a table of the lake), transforms it with one Spark query that calls it `source`, and
keeps one target table. How it does so follows from the declaration alone:

    files    new files, each read once
    rows     a table, row by row: the query runs over the rows that changed
    groups   a table, by groups (`by`): the query runs over the groups that have changed rows
    full     a table, all of it: the query runs over everything whenever anything changed (`full = true`)

A table is kept by one step, unless files are all that it is kept from: steps that delete would delete each other's
rows. Steps run after those whose targets they read, in whichever pipeline; a circle of them is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, get_args

from lithify.core.expectation import Expectation, Otherwise
from lithify.core.json_out import dumps
from lithify.core.names import parse_table_name
from lithify.core.query_text import reads_source, without_end
from lithify.core.schema import one_or_several
from lithify.errors import InvalidRequest
from lithify.options.table_options import MissingColumns
from lithify.pipelines.schedule import SCHEDULE_KEYS, Schedule, parse_schedule
from lithify.text.debezium import unit_of

Kind = Literal["files", "rows", "groups", "full"]
NAME_LENGTH_MAX = 48
STEPS_MAX = 100
FORMATS = ("csv", "json", "parquet")
EVERYTHING = "select * from source"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
# The log keeps facts about a feed under these endings of its name.
_RESERVED = ("seq", "settings", "origin")


@dataclass(frozen=True)
class Step:
    pipeline: str
    name: str
    target: str
    sql: str = EVERYTHING
    table: str | None = None
    files: tuple[str, ...] = ()
    format: str | None = None
    encoding: str | None = None
    schema: str | None = None
    bad_records: Literal["fail", "quarantine"] = "fail"
    by: tuple[str, ...] = ()
    full: bool = False
    key: tuple[str, ...] | None = None
    mode: Literal["append", "upsert", "update"] | None = None
    order_by: str | tuple[str, ...] | None = None
    time: str | None = None
    partition_by: tuple[str, ...] | None = None
    expect: tuple[Expectation, ...] = ()
    missing: MissingColumns | None = None
    envelope: str | None = None

    @property
    def label(self) -> str:
        return f"{self.pipeline}.{self.name}"

    @property
    def feed(self) -> str:
        """Under which the target remembers how far the step has come."""
        return f"pipeline.{self.pipeline}.{self.name}"

    @property
    def kind(self) -> Kind:
        if self.files:
            return "files"
        return "full" if self.full else "groups" if self.by else "rows"

    @property
    def source(self) -> str:
        return self.table if self.table is not None else ", ".join(self.files)

    @property
    def updates(self) -> bool:
        """Whether its rows set the columns that they have, and leave the others."""
        return self.mode == "update"

    def fingerprint(self, *further: str) -> int:
        """A number that changes with whatever decides which rows the target holds."""
        set_aside = sorted(each.that for each in self.expect if each.otherwise == "quarantine")
        opened = [] if self.envelope is None else [self.envelope]
        sets = [self.mode] if self.updates else []
        text = dumps([self.table, self.sql, self.by, self.full, set_aside, *further, *opened, *sets])
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Declaration:
    name: str
    steps: tuple[Step, ...]
    schedule: Schedule | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.target for step in self.steps))


def parse_pipelines(document: Any) -> dict[str, Declaration]:
    """Every pipeline of a document `{name: {"steps": [{…}]}}`, as in `[pipelines.<name>]` of lithify.toml."""
    if not isinstance(document, Mapping):
        raise InvalidRequest("pipelines are tables: write [[pipelines.<name>.steps]] before each step in lithify.toml")
    found = {name: parse_pipeline(name, body) for name, body in document.items()}
    _check_targets(step for declaration in found.values() for step in declaration.steps)
    return found


def parse_pipeline(name: str, body: Any) -> Declaration:
    check_name(name, "a pipeline")
    if not isinstance(body, Mapping):
        raise InvalidRequest(f"pipeline {name} has no steps: write [[pipelines.{name}.steps]] before each of them")
    check_known(f"pipeline {name}", body, ("steps", *SCHEDULE_KEYS))
    listed = body.get("steps")
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise InvalidRequest(f"pipeline {name} has no steps: write [[pipelines.{name}.steps]] before each of them")
    if len(listed) > STEPS_MAX:
        raise InvalidRequest(f"pipeline {name} has {len(listed)} steps, more than {STEPS_MAX}: make it two pipelines")
    steps = tuple(_parse_step(name, number, each) for number, each in enumerate(listed, 1))
    seen: set[str] = set()
    for step in steps:
        if step.name in seen:
            raise InvalidRequest(
                f"pipeline {name} has two steps called {step.name!r}: give one of them another name = …"
            )
        seen.add(step.name)
    _check_targets(steps)
    return Declaration(name, steps, parse_schedule(f"pipeline {name}", body))


# -- one step


@dataclass(frozen=True)
class _Rule:
    """How one key of a step is read, and which sources it goes with."""

    read: Callable[[str, Any], Any]
    only_with: Literal["files", "table"] | None = None


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{what} is a text, not {value!r}")
    return value.strip()


def _texts(what: str, value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(each, str) and each for each in listed):
        raise InvalidRequest(f'{what} is a name or a list of names like ["id"], not {value!r}')
    if len(set(listed)) < len(listed):
        raise InvalidRequest(f"{what} names one twice: {', '.join(listed)}")
    return tuple(listed)


def _columns(what: str, value: Any) -> tuple[str, ...]:
    return () if isinstance(value, list | tuple) and not value else _texts(what, value)


def _flag(what: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{what} is true or false, not {value!r}")
    return value


def _one_of(*choices: str) -> Callable[[str, Any], str]:
    def read(what: str, value: Any) -> str:
        if value not in choices:
            raise InvalidRequest(f"{what} is {', '.join(choices[:-1])} or {choices[-1]}, not {value!r}")
        return str(value)

    return read


def _envelope(what: str, value: Any) -> str:
    try:
        unit_of(value)
    except InvalidRequest as error:
        raise InvalidRequest(f"{what}: {error}") from None
    return str(value)


def _table(what: str, value: Any) -> str:
    try:
        return str(parse_table_name(value))
    except InvalidRequest as error:
        raise InvalidRequest(f"{what}: {error}") from None


_KEYS: dict[str, _Rule] = {
    "name": _Rule(_text),
    "files": _Rule(_texts),
    "table": _Rule(_table),
    "sql": _Rule(lambda what, value: without_end(_text(what, value))),
    "target": _Rule(_table),
    "key": _Rule(_columns),
    "mode": _Rule(_one_of("append", "upsert", "update")),
    "order_by": _Rule(lambda what, value: one_or_several(_texts(what, value))),
    "time": _Rule(_text),
    "partition_by": _Rule(_columns),
    "format": _Rule(_one_of(*FORMATS), "files"),
    "encoding": _Rule(_text, "files"),
    "schema": _Rule(_text, "files"),
    "bad_records": _Rule(_one_of("fail", "quarantine"), "files"),
    "by": _Rule(_texts, "table"),
    "full": _Rule(_flag, "table"),
    "expect": _Rule(lambda what, value: value),
    "missing": _Rule(_one_of(*get_args(MissingColumns))),
    "envelope": _Rule(lambda what, value: _envelope(what, value)),
}
# Of a step that opens messages, whatever it reads them from.
_OF_MESSAGES = ("schema", "bad_records")
_EXPECTATION_KEYS = ("name", "that", "otherwise")


def _parse_step(pipeline: str, number: int, body: Any) -> Step:
    where = f"step {number} of pipeline {pipeline}"
    if not isinstance(body, Mapping):
        raise InvalidRequest(f"{where} is not a table of settings: write [[pipelines.{pipeline}.steps]] before it")
    if isinstance(body.get("name"), str):
        where = f"step {body['name']!r} of pipeline {pipeline}"
    check_known(where, body, _KEYS)
    if ("files" in body) == ("table" in body):
        raise InvalidRequest(f'{where} needs a source, one of the two: files = "folder/*.json" or table = "ns.table"')
    if "target" not in body:
        raise InvalidRequest(f'{where} needs target = "namespace.table", the table that it keeps')
    values: dict[str, Any] = {}
    for name, value in body.items():
        rule = _KEYS[name]
        opens = name in _OF_MESSAGES and "envelope" in body
        if rule.only_with is not None and rule.only_with not in body and not opens:
            raise InvalidRequest(f"{where}: {name} goes with {rule.only_with} = … only: leave it out")
        values[name] = rule.read(f"{where}: {name}", value)
    values.setdefault("name", values["target"].partition(".")[2])
    check_name(values["name"], f"a step of pipeline {pipeline}")
    if values["name"] in _RESERVED:
        raise InvalidRequest(f"{where}: {values['name']!r} cannot be a step's name: give it another")
    values["expect"] = _parse_expectations(where, values.get("expect", ()))
    step = Step(pipeline, **values)
    _check_step(where, step)
    return step


def _check_step(where: str, step: Step) -> None:
    if step.full and step.by:
        raise InvalidRequest(f"{where}: by and full are two ways to go about it: leave one out")
    if step.mode in ("upsert", "update") and step.key == ():
        raise InvalidRequest(f"{where}: mode {step.mode} needs a key, and key is empty: use mode append, or name a key")
    if step.updates and step.kind in ("groups", "full"):
        raise InvalidRequest(
            f"{where}: mode update sets some columns of what arrives; this step computes whole rows: leave mode out"
        )
    if step.updates and step.missing is not None:
        raise InvalidRequest(f"{where}: missing says what becomes of columns that rows lack, and update leaves them")
    if step.order_by is not None and step.kind in ("groups", "full"):
        raise InvalidRequest(
            f"{where}: order_by chooses between versions that arrive; this step computes the one that holds: leave "
            "order_by out"
        )
    if step.table == step.target:
        raise InvalidRequest(f"{where} reads {step.table} and keeps it too: give it another target")
    if step.envelope is not None:
        _check_messages(where, step)
    if not reads_source(step.sql):
        raise InvalidRequest(f"{where}: the query does not read its source: write `from source`")


def _check_messages(where: str, step: Step) -> None:
    """Messages say what becomes of rows, deleted ones too; what is asked of rows belongs to a step that reads them."""
    unfit = {
        "sql": step.sql != EVERYTHING,
        "expect": bool(step.expect),
        "by": bool(step.by),
        "full": step.full,
    }
    for name, given in unfit.items():
        if given:
            raise InvalidRequest(
                f"{where}: envelope makes rows of {step.target} of messages, deletes among them, and {name} is about "
                f'rows: leave it out, and say it in a step with table = "{step.target}"'
            )
    if step.mode == "append" or step.key == ():
        raise InvalidRequest(f"{where}: messages also delete, which takes a key: name one, and leave mode append out")
    if step.format not in (None, "json"):
        raise InvalidRequest(
            f'{where}: messages in an envelope are JSON, one on each line, not {step.format}: say format = "json"'
        )


def _parse_expectations(where: str, listed: Any) -> tuple[Expectation, ...]:
    if not isinstance(listed, list | tuple):
        raise InvalidRequest(f"{where}: expect is a list: write [[pipelines.<name>.steps.expect]] before each")
    found: list[Expectation] = []
    for number, body in enumerate(listed, 1):
        what = f"expectation {number} of {where}"
        if not isinstance(body, Mapping):
            raise InvalidRequest(f"{what} is not a table of settings")
        check_known(what, body, _EXPECTATION_KEYS)
        if "that" not in body:
            raise InvalidRequest(f'{what} needs a condition: that = "amount >= 0"')
        that = _text(f"{what}: that", body["that"])
        otherwise: Any = _one_of(*get_args(Otherwise))(f"{what}: otherwise", body.get("otherwise", "fail"))
        found.append(Expectation(_text(f"{what}: name", body.get("name", that)), that, otherwise))
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise InvalidRequest(f"{where} has two expectations of one name: {', '.join(names)}")
    return tuple(found)


def check_known(where: str, body: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in body:
        if name not in known:
            near = difflib.get_close_matches(str(name), list(known), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise InvalidRequest(f"{where} has a key {name!r} that is not known: {hint}")


def check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"{name!r} cannot name {what}: use lower-case letters, digits and _, starting with a letter, at most "
            f"{NAME_LENGTH_MAX}"
        )


def _check_targets(steps: Iterable[Step]) -> None:
    writers: dict[str, Step] = {}
    for step in steps:
        other = writers.setdefault(step.target, step)
        if other is not step and not (step.kind == "files" and other.kind == "files"):
            raise InvalidRequest(
                f"{other.label} and {step.label} both keep {step.target}: steps that read a table delete what they did "
                "not write, so give each a target of its own"
            )


# -- order


@dataclass(frozen=True)
class Graph:
    """Steps and what each of them reads: its source, and the tables that its query looks things up in."""

    steps: tuple[Step, ...]
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def before(self, step: Step) -> list[Step]:
        tables = self.reads.get(step.label, frozenset()) | ({step.table} if step.table else set())
        return [other for other in self.steps if other.target in tables]

    def ordered(self) -> list[Step]:
        """Each step after those whose targets it reads, otherwise as declared."""
        done: dict[str, Step] = {}
        for step in self.steps:
            self._visit(step, [], done)
        return list(done.values())

    def _visit(self, step: Step, path: list[Step], done: dict[str, Step]) -> None:
        if step.label in done:
            return
        if step in path:
            circle = [*path[path.index(step) :], step]
            told = " → ".join(f"{each.label} ({each.target})" for each in reversed(circle))
            raise InvalidRequest(f"the steps go round in a circle, so that none can run first: {told}")
        for other in self.before(step):
            self._visit(other, [*path, step], done)
        done[step.label] = step


def pipelines_in_order(steps: Sequence[Step]) -> list[str]:
    """Names of the pipelines of ordered steps, by their first steps."""
    return list(dict.fromkeys(step.pipeline for step in steps))
