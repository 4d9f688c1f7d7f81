"""What can be tuned, each declared once: type, default, help text and bounds in one line.

`TableOptions` are settings of a lake and options of a table: `Settings` and `MaintenancePolicy` inherit their fields.
An option is kept as a Delta table property `lithify.<name>` of the changes log; one that is not set is the lake's
setting of the same name, or else its own default. `parse` turns what a user gives (a value, or its text) into a checked
value; `stored` and `effective` go to the properties and back. Delta has no way to take a property away, so an empty
text means "not set". A stored value that this version cannot read counts as not set too: options decide how work is
done, never which rows a table has. The one that does, `expires`, is read by `TableSchema.expiry`, which refuses then.

`missing_columns` is said by every table with a key since there is such an option; one that does not say it at all is
from before, and goes on as it was made (`BEFORE`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, get_args, get_type_hints

from lithify.errors import InvalidRequest, did_you_mean
from lithify.options.expiry_text import FORM as EXPIRY_FORM
from lithify.options.expiry_text import expiry_text, parse_expiry
from lithify.options.tiers import parse_declarations

PREFIX = "lithify."
DEFAULT, NONE = "default", "none"
GIB, MIB = 2**30, 2**20
MISSING_COLUMNS = "missing_columns"
MissingColumns = Literal["refuse", "null"]


@dataclass(frozen=True)
class Option:
    help: str
    low: float | None = None
    high: float | None = None
    name: str = ""
    default: Any = None
    kind: Any = None

    @property
    def allowed(self) -> str:
        within = "" if self.low is None else f" from {self.low:,} to {self.high:,}"
        return _KINDS[self.kind][0] + within

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        """The bounds, for a setting of this name."""
        schema = handler(source)
        number = schema["schema"] if schema["type"] == "nullable" else schema
        number.update(ge=self.low, le=self.high)
        return schema


@dataclass(frozen=True)
class MaintenanceOptions:
    """When a table's changes are folded and its files merged."""

    fold_share_max: Annotated[float, Option("Share of changed rows above which changes are folded.", 0.0001, 100)] = 0.1
    fold_rows_min: Annotated[
        int, Option("Changed rows below which their share is no reason to fold.", 0, 1_000_000_000)
    ] = 10_000
    fold_files_max: Annotated[int, Option("Number of change files at which they are folded.", 1, 100_000)] = 100
    fold_age_s_max: Annotated[
        int, Option("Age of the oldest change at which changes are folded, in seconds.", 1, 31_536_000)
    ] = 3_600
    read_overhead_max: Annotated[
        float,
        Option("Expected time of a read, relative to a folded table, above which changes are folded.", 1.01, 1_000),
    ] = 1.5
    write_amplification_max: Annotated[
        float,
        Option(
            "Bytes that a fold may write per byte of changes; until then changes gather, unless reads suffer.",
            1,
            1_000_000,
        ),
    ] = 12
    minor_files_min: Annotated[int, Option("Small change files in a row that are merged into one.", 2, 500)] = 20
    minor_bytes_max: Annotated[int, Option("Change files larger than this are left to the fold.", 2**10, GIB)] = (
        32 * MIB
    )
    minor_rows_max: Annotated[int, Option("Rows that one merge of change files takes at most.", 1_000, 100_000_000)] = (
        2_000_000
    )
    pack_target_bytes: Annotated[int, Option("Size that small files without a time are merged to.", MIB, 100 * GIB)] = (
        512 * MIB
    )
    pack_files_min: Annotated[int, Option("Small files of a partition that are worth merging.", 2, 100_000)] = 10
    batch_files_max: Annotated[
        int, Option("Files that one compaction job takes at most; a remainder of one joins the last.", 2, 500)
    ] = 30
    cluster_target_bytes: Annotated[int, Option("Size of the files that optimize writes.", MIB, 100 * GIB)] = 128 * MIB


@dataclass(frozen=True)
class TableOptions(MaintenanceOptions):
    """What a lake sets for all its tables, and a table for itself."""

    row_group_rows: Annotated[
        int | None, Option("Rows of a Parquet row group; default by size.", 1_024, 16_777_216)
    ] = None
    compression_level: Annotated[int, Option("ZSTD level of data files.", 1, 19)] = 3
    bloom_fpp: Annotated[float, Option("Wanted share of false positives of a bloom filter.", 0.0001, 0.5)] = 0.01
    stats_columns_max: Annotated[int, Option("Further columns with statistics in the log.", 0, 1_000)] = 32
    late_hours: Annotated[
        float, Option("Hours after a fold in which a delete with an order value keeps late events out.", 0, 87_600)
    ] = 24
    checkpoint_every: Annotated[
        int, Option("Commits between two checkpoints of a log, more while they come fast.", 2, 100_000)
    ] = 20
    log_retain_hours: Annotated[float, Option("Age at which commits may leave the log.", 1, 87_600)] = 168
    log_commits_max: Annotated[int, Option("Commits that a log keeps at most.", 100, 10_000_000)] = 10_000
    vacuum_retain_hours: Annotated[float, Option("Hours that removed files are kept at most.", 1, 87_600)] = 168
    vacuum_retain_versions: Annotated[
        int, Option("Newest writes whose versions stay readable at most.", 1, 10_000_000)
    ] = 10_000
    vacuum_retain_size_multiple: Annotated[
        float, Option("Size of removed files that are kept, relative to the live ones, at most.", 0, 1_000)
    ] = 2
    vacuum_retain_bytes_min: Annotated[
        int, Option("Size of removed files that is never too much, however small the table.", 0, 2**50)
    ] = GIB
    vacuum_retain_hours_min: Annotated[
        float, Option("Hours that removed files are kept whatever they take.", 0, 87_600)
    ] = 1
    quarantine_retain_hours: Annotated[
        float | None,
        Option("Hours that records which were set aside are kept; default until they are purged.", 1, 87_600),
    ] = None


@dataclass(frozen=True)
class OwnOptions(TableOptions):
    """What only a table sets, because it is about its columns, or changes what the lake says."""

    bloom_columns: Annotated[
        tuple[str, ...] | None, Option("Columns with bloom filters; default key, *_id and *_key columns.")
    ] = None
    sort_by: Annotated[
        tuple[str, ...] | None, Option("Columns that compactions sort rows by; default the key, else the time column.")
    ] = None
    expires: Annotated[str | None, Option("When a row expires: a column of times, or one + interval 'N days'.")] = None
    missing_columns: Annotated[
        MissingColumns,
        Option("Whether upserts of rows that lack a column are refused, or write null there."),
    ] = "refuse"
    tiers: Annotated[tuple[Mapping[str, Any], ...], Option("Changes to the lake's tiers for this table, by name.")] = ()


def _declared() -> dict[str, Option]:
    hints, plain = get_type_hints(OwnOptions, include_extras=True), get_type_hints(OwnOptions)
    return {
        each.name: replace(
            hints[each.name].__metadata__[0], name=each.name, default=each.default, kind=plain[each.name]
        )
        for each in fields(OwnOptions)
    }


def defaults_of(settings: object) -> dict[str, Any]:
    """The lake's own defaults: settings that are named like an option."""
    return {name: getattr(settings, name, default) for name, default in DEFAULTS.items()}


def parse(name: str, value: Any) -> Any:
    """The checked value, or None for "as if it were not set"."""
    option = OPTIONS.get(name)
    if option is None:
        raise InvalidRequest(
            f"there is no table option {name!r}: "
            f"{did_you_mean(name, OPTIONS) or 'there are ' + ', '.join(sorted(OPTIONS))}"
        )
    if value is None or (isinstance(value, str) and value.strip() == DEFAULT):
        return None
    try:
        parsed = _KINDS[option.kind][1](value)
        if option.low is not None and option.high is not None and not option.low <= parsed <= option.high:
            raise ValueError
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidRequest(
            f"option {name} cannot be {value!r}: it is {option.allowed} ({DEFAULT!r} goes back to the default)"
        ) from error
    return parsed


def parse_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: parse(name, value) for name, value in values.items()}


def stored(values: Mapping[str, Any]) -> dict[str, str]:
    """Parsed values as table properties."""
    return {PREFIX + name: "" if value is None else shown(value) for name, value in values.items()}


def chosen(properties: Mapping[str, str]) -> dict[str, Any]:
    """The options that the table itself sets."""
    found = {name: chosen_one(name, properties) for name in OPTIONS}
    return {name: value for name, value in found.items() if value is not None}


def chosen_one(name: str, properties: Mapping[str, str]) -> Any:
    """What the table itself sets an option to; None: it does not, or not so that it can be read."""
    text = properties.get(PREFIX + name, "")
    try:
        return parse(name, text) if text else None
    except InvalidRequest:
        return None


def effective(properties: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Every option with the value that holds for the table."""
    before = {name: value for name, value in BEFORE.items() if PREFIX + name not in properties}
    return {**DEFAULTS, **defaults, **before, **chosen(properties)}


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


def _missing_columns(value: Any) -> str:
    if not isinstance(value, str) or value.strip().lower() not in get_args(MissingColumns):
        raise ValueError
    return value.strip().lower()


def _expiry(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return expiry_text(*parse_expiry(value))


_KINDS: dict[Any, tuple[str, Callable[[Any], Any]]] = {
    int: ("a whole number", _integer),
    int | None: ("a whole number", _integer),
    float: ("a number", _number),
    float | None: ("a number", _number),
    tuple[str, ...] | None: ("column names with commas between them, or none", _names),
    str | None: (EXPIRY_FORM, _expiry),
    MissingColumns: ("refuse or null", _missing_columns),
    tuple[Mapping[str, Any], ...]: ("a list of tiers", parse_declarations),
}
OPTIONS: dict[str, Option] = _declared()
DEFAULTS: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()}
BEFORE: dict[str, Any] = {MISSING_COLUMNS: "null"}
