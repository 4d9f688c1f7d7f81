"""The options of the data source: what each is for, and an error for everything else.

Spark hands options over as text, their names in any case, together with some of its own. An option that is misspelt,
or that belongs to another kind of work, would otherwise do nothing without a word: both are refused, with the name that
was probably meant.

A table is named by one path, `<lake>/<namespace>/<table>`, or by the options `lake` and `table`.

CREATE TABLE … USING lithify hands over all that Spark writes down of a table of its catalog: keys of its own (`owner`,
`provider`, …), the user's properties, LOCATION as `path` and `location`, and each of OPTIONS twice, as `option.lake`
and as `lake`. When such a table is used, Spark hands over none of it, but the columns with their metadata: there it
is written down (`as_remembered`).

Names of options that Delta's users know are answered with the word that is used here.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Literal

from lithify.core.names import parse_table_name
from lithify.errors import InvalidRequest
from lithify.options.table_options import MissingColumns


class Use(StrEnum):
    READ = "batch reads"
    WRITE = "batch writes"
    STREAM_IN = "streams that read"
    STREAM_OUT = "streams that write"


_ANY = frozenset(Use)
_USES: dict[str, frozenset[Use]] = {
    "path": _ANY,
    "lake": _ANY,
    "table": _ANY,
    "asOf": frozenset({Use.READ}),
    "columns": frozenset({Use.READ}),
    "readOnce": frozenset({Use.READ}),
    "since": frozenset({Use.READ}),
    "until": frozenset({Use.READ}),
    "changes": frozenset({Use.READ, Use.STREAM_IN}),
    "before": frozenset({Use.READ, Use.STREAM_IN}),
    "startingPosition": frozenset({Use.STREAM_IN}),
    "rowsPerBatch": frozenset({Use.STREAM_IN}),
    "mode": frozenset({Use.WRITE, Use.STREAM_OUT}),
    "batchId": frozenset({Use.WRITE}),
    "opColumn": frozenset({Use.STREAM_OUT}),
    "missing": frozenset({Use.WRITE, Use.STREAM_OUT}),
    "nullKeys": frozenset({Use.STREAM_OUT}),
    "name": frozenset({Use.STREAM_OUT}),
}
# Spark passes on what it was told itself.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "serialization.format"})
# Of a table in Spark's catalog. Only there are the first two.
_CATALOG = ("owner", "provider")
_OPTION = "option."
# Metadata of columns, in which Spark's catalog keeps what a table of it is.
REMEMBERED = "lithify"
# What others call it.
_FOREIGN = {
    "versionasof": "asOf with a seq or a tag (table.tag), e.g. option('asOf', '41')",
    "timestampasof": "asOf with a time, e.g. option('asOf', '2026-11-15 12:00:00')",
    "readchangefeed": "changes, or since and until",
    "readchangedata": "changes, or since and until",
    "startingversion": "since for a read, startingPosition for a stream",
    "endingversion": "until",
    "startingtimestamp": "since with a position of then: table.position(as_of='2026-11-15 12:00:00')",
    "endingtimestamp": "until with a position of then: table.position(as_of='2026-11-15 12:00:00')",
    "mergeschema": "table.add_column, or ALTER TABLE … ADD COLUMN in lake.execute, before the write",
    "overwriteschema": "table.add_column, or a new table",
    "replacewhere": "DELETE and INSERT, or MERGE, in lake.spark_sql, as one commit",
    "partitionoverwritemode": "MERGE … WHEN NOT MATCHED BY SOURCE … THEN DELETE in lake.spark_sql",
    "txnappid": "batchId, or for a stream its checkpoint alone",
    "txnversion": "batchId, or for a stream its checkpoint alone",
    "maxfilespertrigger": "rowsPerBatch",
    "maxbytespertrigger": "rowsPerBatch",
    "key": "lake.create_table(name, schema, key=…): a write does not create the table",
}
_BY_LOWER = {name.lower(): name for name in _USES}

Mode = Literal["append", "upsert"]
NullKeys = Literal["fail", "quarantine"]


@dataclass(frozen=True)
class SourceOptions:
    lake: str
    table: str
    as_of: str | None = None
    columns: tuple[str, ...] | None = None
    since: str | None = None
    until: str | None = None
    changes: bool = False
    starting_position: str = "earliest"
    rows_per_batch: int | None = None
    mode: Mode | None = None
    batch_id: str | None = None
    op_column: str | None = None
    null_keys: NullKeys = "fail"
    name: str | None = None
    checkpoint: str | None = None
    read_once: bool = False
    before: bool = False
    missing: MissingColumns | None = None


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Options of any use; whether they fit the one at hand is asked of `check_use`."""
    given, checkpoint = options_in(given), None
    for key, value in given.items():
        if key.lower() == "checkpointlocation":
            checkpoint = value
    found = {_known(key): value for key, value in given.items() if key.lower() not in _SPARKS_OWN}
    lake, table = _lake_and_table(found)
    rows_per_batch = _positive(found, "rowsPerBatch")
    _refuse_together(found, "asOf", ("since", "until", "changes", "startingPosition", "rowsPerBatch", "before"))
    # Whoever says where changes begin, or how many at a time, wants changes.
    changes = _truth(found, "changes") or any(name in found for name in ("since", "startingPosition", "rowsPerBatch"))
    if _truth(found, "before") and not changes:
        raise InvalidRequest("option 'before' shows the rows before updates: read changes, with 'since' or 'changes'")
    if "until" in found and "since" not in found and not _truth(found, "changes"):
        raise InvalidRequest("option 'until' ends a read of changes: say with 'since' where it begins")
    return SourceOptions(
        lake,
        table,
        found.get("asOf"),
        _names(found.get("columns")),
        found.get("since"),
        found.get("until"),
        changes,
        found.get("startingPosition", "earliest"),
        rows_per_batch,
        _one_of(found, "mode", ("append", "upsert")),  # type: ignore[arg-type]
        found.get("batchId"),
        found.get("opColumn"),
        _one_of(found, "nullKeys", ("fail", "quarantine")) or "fail",  # type: ignore[arg-type]
        found.get("name"),
        checkpoint,
        _truth(found, "readOnce"),
        _truth(found, "before"),
        _one_of(found, "missing", ("refuse", "null")),  # type: ignore[arg-type]
    )


def of_catalog(given: Mapping[str, str]) -> bool:
    """Whether these are all that Spark knows of a table that is being created in its catalog."""
    return {key.lower() for key in given} >= set(_CATALOG)


def names_table(given: Mapping[str, str]) -> bool:
    return not {key.lower() for key in given}.isdisjoint(("path", "lake", "table"))


def options_in(given: Mapping[str, str]) -> dict[str, str]:
    """What the user said, without what Spark adds. Of a table in a catalog, what stands in OPTIONS, and LOCATION."""
    if not of_catalog(given):
        return dict(given)
    chosen = {key.lower()[len(_OPTION) :] for key in given if key.lower().startswith(_OPTION)}
    return {key: value for key, value in given.items() if key.lower() in chosen or key.lower() == "path"}


def as_remembered(given: Mapping[str, str]) -> dict[str, str]:
    """Metadata of a column by which the table is found again."""
    return {REMEMBERED: json.dumps(options_in(given), sort_keys=True)}


def remembered(metadata: Mapping[str, object]) -> dict[str, str]:
    """The options of then; none where there is no such metadata."""
    text = metadata.get(REMEMBERED)
    found = json.loads(text) if isinstance(text, str) else {}
    return {str(key): str(value) for key, value in found.items()}


def check_use(given: Mapping[str, str], use: Use) -> None:
    """Refuse options that do nothing for this use."""
    for key in options_in(given):
        if key.lower() in _SPARKS_OWN:
            continue
        name = _known(key)
        if use not in _USES[name]:
            uses = " and ".join(sorted(_USES[name]))
            raise InvalidRequest(f"option {name!r} is for {uses}, not for {use.value}: leave it out")


def _known(key: str) -> str:
    if (name := _BY_LOWER.get(key.lower())) is not None:
        return name
    if (word := _FOREIGN.get(key.lower())) is not None:
        raise InvalidRequest(f"the data source lithify has no option {key!r}: what it is for is {word}")
    near = difflib.get_close_matches(key.lower(), _BY_LOWER, 1)
    hint = f"did you mean {_BY_LOWER[near[0]]!r}?" if near else f"there are {', '.join(sorted(_USES))}"
    raise InvalidRequest(f"the data source lithify has no option {key!r}: {hint}")


def _lake_and_table(found: Mapping[str, str]) -> tuple[str, str]:
    lake, table, path = found.get("lake"), found.get("table"), found.get("path")
    if path is not None:
        if path.startswith("file:/") and not path.startswith("file://"):
            path = "file://" + path.removeprefix("file:")  # as Spark writes a LOCATION
        if lake is not None or table is not None:
            raise InvalidRequest("give either a path, or the options 'lake' and 'table'")
        parsed = PurePosixPath(path.rstrip("/"))
        if len(parsed.parts) < 3 and not (len(parsed.parts) == 2 and not parsed.is_absolute()):
            raise InvalidRequest(f"the path {path!r} names no table: write it as <lake>/<namespace>/<table>")
        # As text: a path would fold the slashes of a file:// address.
        folder = path.rstrip("/").removesuffix(parsed.name).rstrip("/").removesuffix(parsed.parent.name)
        lake, table = folder.rstrip("/") or ("/" if folder else "."), f"{parsed.parent.name}.{parsed.name}"
    if lake is None or table is None:
        raise InvalidRequest(
            "which table? Give a path like lake/shop/orders, or the options 'lake' (a folder) and 'table' "
            "(shop.orders). A table of Spark's catalog is created without columns, which are those of the lake's: "
            "CREATE TABLE t USING lithify LOCATION 'lake/shop/orders'; with columns of its own Spark does not tell "
            "which table it is: DROP TABLE t, and create it so. Nor does it for rows whose columns have the "
            "names and types of the table: use lake.spark_sql, or df.write.format('lithify')"
        )
    return lake, str(parse_table_name(table))


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise InvalidRequest(f"option 'columns' is a list of different columns like 'id, total', not {text!r}")
    return names


def _positive(found: Mapping[str, str], name: str) -> int | None:
    text = found.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidRequest(f"option {name!r} is a number from 1, not {text!r}")
    return int(text)


def _truth(found: Mapping[str, str], name: str) -> bool:
    text = found.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"option {name!r} is true or false, not {found[name]!r}")
    return text == "true"


def _one_of(found: Mapping[str, str], name: str, values: tuple[str, ...]) -> str | None:
    text = found.get(name)
    if text is None or text.lower() in values:
        return None if text is None else text.lower()
    raise InvalidRequest(f"option {name!r} is one of {', '.join(values)}, not {text!r}")


def _refuse_together(found: Mapping[str, str], one: str, others: tuple[str, ...]) -> None:
    clash = next((name for name in others if name in found), None)
    if one in found and clash is not None:
        raise InvalidRequest(f"options {one!r} and {clash!r} exclude each other: read a state, or the changes to it")
