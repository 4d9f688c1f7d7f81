"""Declared streams: folders whose files are taken into a table as they appear, without a query in between. Pure.

What `[streams.<name>]` says is what `lithify stream` takes as arguments and options, under the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lithify.core.names import parse_table_name
from lithify.errors import InvalidRequest
from lithify.options.table_options import MissingColumns
from lithify.pipelines.declaration import FORMATS, check_known, check_name
from lithify.pipelines.schedule import SCHEDULE_KEYS, Schedule, parse_schedule
from lithify.text.debezium import unit_of

DEFAULT = Schedule(every_s=10.0)
FILES_MAX = 1_000_000


@dataclass(frozen=True)
class StreamDeclaration:
    name: str
    source: str
    target: str
    format: Literal["csv", "json", "parquet"] | None = None
    encoding: str | None = None
    mode: Literal["append", "upsert", "update"] | None = None
    op_column: str | None = None
    envelope: str | None = None
    if_changed: bool = False
    missing: MissingColumns | None = None
    on_bad_record: Literal["fail", "quarantine"] = "fail"
    files_max: int = 1_000
    checkpoint: str | None = None
    schedule: Schedule = DEFAULT

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.target,)


_TEXTS = ("source", "target", "encoding", "op_column", "envelope", "checkpoint")
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "format": FORMATS,
    "mode": ("append", "upsert", "update"),
    "missing": get_args(MissingColumns),
    "on_bad_record": ("fail", "quarantine"),
}


def parse_streams(document: Any) -> dict[str, StreamDeclaration]:
    """Every stream of a document `{name: {"source": …, "target": …}}`, as in `[streams.<name>]` of lithify.toml."""
    if not isinstance(document, Mapping):
        raise InvalidRequest("streams are tables: write [streams.<name>] before what each of them takes")
    return {name: parse_stream(name, body) for name, body in document.items()}


def parse_stream(name: str, body: Any) -> StreamDeclaration:
    check_name(name, "a stream")
    where = f"stream {name}"
    if not isinstance(body, Mapping):
        raise InvalidRequest(f"{where} says nothing: write [streams.{name}] before its source and target")
    check_known(where, body, (*_TEXTS, *_CHOICES, "if_changed", "files_max", *SCHEDULE_KEYS))
    for needed, what in (("source", 'source = "folder"'), ("target", 'target = "namespace.table"')):
        if needed not in body:
            raise InvalidRequest(f"{where} needs {what}")
    values = {key: _value(f"{where}: {key}", key, value) for key, value in body.items() if key not in SCHEDULE_KEYS}
    try:
        values["target"] = str(parse_table_name(values["target"]))
        if "envelope" in values:
            unit_of(values["envelope"])
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}") from None
    return StreamDeclaration(name, **values, schedule=parse_schedule(where, body) or DEFAULT)


def _value(what: str, key: str, value: Any) -> Any:
    if key in _TEXTS:
        if not isinstance(value, str) or not value.strip():
            raise InvalidRequest(f"{what} is a text, not {value!r}")
        return value.strip()
    if key == "if_changed":
        if not isinstance(value, bool):
            raise InvalidRequest(f"{what} is true or false, not {value!r}")
    elif key == "files_max":
        if type(value) is not int or not 1 <= value <= FILES_MAX:
            raise InvalidRequest(f"{what} is a whole number from 1 to {FILES_MAX:,}, not {value!r}")
    elif value not in _CHOICES[key]:
        raise InvalidRequest(f"{what} is {', '.join(_CHOICES[key][:-1])} or {_CHOICES[key][-1]}, not {value!r}")
    return value
