"""What can be tuned per table: one row per option, kept as a Delta table property `lithify.<name>` of the changes log.

A value that is not set is the lake's setting of the same name, or else the option's own default. `parse` turns what a
user gives (a value, or its text) into a checked value; `stored` and `effective` go to the properties and back. Delta
has no way to take a property away, so an empty text means "not set". A stored value that this version cannot read
counts as not set too: options decide how work is done, never which rows a table has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lithify.errors import InvalidRequest
from lithify.options.tiers import parse_declarations

PREFIX = "lithify."
DEFAULT, NONE = "default", "none"
INTEGER, NUMBER, FLAG, NAMES, TEXT, TIERS = "integer", "number", "flag", "names", "text", "tiers"
_KIND_SHOWN = {
    INTEGER: "a whole number",
    NUMBER: "a number",
    FLAG: "true or false",
    NAMES: "column names with commas between them, or none",
    TEXT: "a text",
    TIERS: "a list of tiers",
}


@dataclass(frozen=True)
class Option:
    """`check` may refuse a parsed value with a ValueError that says what is allowed."""

    name: str
    kind: str
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    check: Callable[[Any], None] | None = None

    @property
    def allowed(self) -> str:
        match self.low, self.high:
            case None, None:
                return _KIND_SHOWN[self.kind]
            case low, None:
                return f"{_KIND_SHOWN[self.kind]} of at least {low:,}"
            case None, high:
                return f"{_KIND_SHOWN[self.kind]} of at most {high:,}"
            case low, high:
                return f"{_KIND_SHOWN[self.kind]} from {low:,} to {high:,}"


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option("row_group_rows", INTEGER, None, "Rows of a Parquet row group; default by size.", 1_024, 16_777_216),
        Option("compression_level", INTEGER, 3, "ZSTD level of data files.", 1, 19),
        Option("bloom_columns", NAMES, None, "Columns with bloom filters; default key, *_id and *_key columns."),
        Option("bloom_fpp", NUMBER, 0.01, "Wanted share of false positives of a bloom filter.", 0.0001, 0.5),
        Option("stats_columns_max", INTEGER, 32, "Further columns with statistics in the log.", 0, 1_000),
        Option("checkpoint_every", INTEGER, 20, "Commits between two checkpoints of a log.", 2, 100_000),
        Option("log_retain_hours", NUMBER, 168, "Age at which commits may leave the log.", 1, 87_600),
        Option("log_commits_max", INTEGER, 10_000, "Commits that a log keeps at most.", 100, 10_000_000),
        Option("fold_share_max", NUMBER, 0.1, "Share of changed rows above which changes are folded.", 0.0001, 100),
        Option(
            "fold_rows_min",
            INTEGER,
            10_000,
            "Changed rows below which their share is no reason to fold.",
            0,
            1_000_000_000,
        ),
        Option("fold_files_max", INTEGER, 100, "Number of change files at which they are folded.", 1, 100_000),
        Option(
            "fold_age_s_max",
            INTEGER,
            3_600,
            "Age of the oldest change at which changes are folded, in seconds.",
            1,
            31_536_000,
        ),
        Option(
            "read_overhead_max",
            NUMBER,
            1.5,
            "Expected time of a read, relative to a folded table, above which changes are folded.",
            1.01,
            1_000,
        ),
        Option(
            "write_amplification_max",
            NUMBER,
            12,
            "Bytes that a fold may write per byte of changes; until then changes gather, unless reads suffer.",
            1,
            1_000_000,
        ),
        Option("vacuum_retain_hours", NUMBER, 168, "Hours that removed files are kept at most.", 1, 87_600),
        Option(
            "vacuum_retain_versions",
            INTEGER,
            10_000,
            "Newest writes whose versions stay readable at most.",
            1,
            10_000_000,
        ),
        Option(
            "vacuum_retain_size_multiple",
            NUMBER,
            2,
            "Size of removed files that are kept, relative to the live ones, at most.",
            0,
            1_000,
        ),
        Option(
            "vacuum_retain_bytes_min",
            INTEGER,
            2**30,
            "Size of removed files that is never too much, however small the table.",
            0,
            2**50,
        ),
        Option(
            "vacuum_retain_hours_min", NUMBER, 1, "Hours that removed files are kept whatever they take.", 0, 87_600
        ),
        Option("minor_files_min", INTEGER, 20, "Small change files in a row that are merged into one.", 2, 500),
        Option(
            "minor_bytes_max", INTEGER, 32 * 2**20, "Change files larger than this are left to the fold.", 2**10, 2**30
        ),
        Option(
            "minor_rows_max",
            INTEGER,
            2_000_000,
            "Rows that one merge of change files takes at most.",
            1_000,
            100_000_000,
        ),
        Option(
            "pack_target_bytes",
            INTEGER,
            512 * 2**20,
            "Size that small files without a time are merged to.",
            2**20,
            100 * 2**30,
        ),
        Option("pack_files_min", INTEGER, 10, "Small files of a partition that are worth merging.", 2, 100_000),
        Option(
            "batch_files_max",
            INTEGER,
            30,
            "Files that one compaction job takes at most; a remainder of one joins the last.",
            2,
            500,
        ),
        Option(
            "cluster_target_bytes", INTEGER, 128 * 2**20, "Size of the files that optimize writes.", 2**20, 100 * 2**30
        ),
        Option("sort_by", NAMES, None, "Columns that compactions sort rows by; default the key, else the time column."),
        Option("tiers", TIERS, (), "Changes to the lake's tiers for this table, by name."),
    )
}
DEFAULTS: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()}


def defaults_of(settings: object) -> dict[str, Any]:
    """The lake's own defaults: settings that are named like an option."""
    return {name: getattr(settings, name, default) for name, default in DEFAULTS.items()}


def parse(name: str, value: Any) -> Any:
    """The checked value, or None for "as if it were not set"."""
    option = OPTIONS.get(name)
    if option is None:
        raise InvalidRequest(f"there is no table option {name!r}: there are {', '.join(sorted(OPTIONS))}")
    if value is None or (isinstance(value, str) and value.strip() == DEFAULT):
        return None
    try:
        parsed = _READERS[option.kind](value)
        if (option.low is not None and parsed < option.low) or (option.high is not None and parsed > option.high):
            raise ValueError
        if option.check is not None:
            option.check(parsed)
    except (ValueError, TypeError, OverflowError) as error:
        allowed = str(error) if option.check is not None and str(error) else option.allowed
        raise InvalidRequest(
            f"option {name} cannot be {value!r}: it is {allowed} ({DEFAULT!r} goes back to the default)"
        ) from error
    return parsed


def parse_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: parse(name, value) for name, value in values.items()}


def stored(values: Mapping[str, Any]) -> dict[str, str]:
    """Parsed values as table properties."""
    return {PREFIX + name: "" if value is None else shown(value) for name, value in values.items()}


def chosen(properties: Mapping[str, str]) -> dict[str, Any]:
    """The options that the table itself sets."""
    found = {}
    for name in OPTIONS:
        text = properties.get(PREFIX + name, "")
        try:
            value = parse(name, text) if text else None
        except InvalidRequest:
            continue
        if value is not None:
            found[name] = value
    return found


def effective(properties: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Every option with the value that holds for the table."""
    return {**DEFAULTS, **defaults, **chosen(properties)}


def is_option(property_name: str) -> bool:
    return property_name.startswith(PREFIX) and property_name.removeprefix(PREFIX) in OPTIONS


def shown(value: Any) -> str:
    """A value as it is stored, and told to people."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _integer(value: Any) -> int:
    if isinstance(value, str):
        return int(value.replace("_", "").replace(",", ""))
    if isinstance(value, bool) or int(value) != value:
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return int(number) if number.is_integer() else number


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise ValueError
    return word == "true"


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        text = value.strip()
        if text == NONE:
            return ()
        value = json.loads(text) if text.startswith("[") else [part.strip() for part in text.split(",")]
    if not isinstance(value, Iterable):
        raise TypeError
    names = tuple(value)
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError
    return tuple(dict.fromkeys(names))


def _any_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value.strip()


_READERS: dict[str, Callable[[Any], Any]] = {
    INTEGER: _integer,
    NUMBER: _number,
    FLAG: _flag,
    NAMES: _names,
    TEXT: _any_text,
    TIERS: parse_declarations,
}
