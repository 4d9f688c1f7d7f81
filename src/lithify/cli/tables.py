"""Commands about the lake and its tables: init, create, tables, describe, partitions, set, adopt, drop."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lithify.cli.command import Commands, Session, TableArgument, table_names
from lithify.cli.output import TABLE, Column, counts
from lithify.cli.settings import accept_lake_settings, set_lake_settings
from lithify.cli.values import bytes_cell, cell, count_cell, human_bytes, parse_bytes
from lithify.core.json_out import dumps
from lithify.core.merge_rules import rules_in
from lithify.core.names import DAY
from lithify.core.order_groups import groups_in, shown_groups
from lithify.core.table_document import definition_document, size_document
from lithify.core.type_text import parse_column
from lithify.core.wording import plural
from lithify.errors import InvalidRequest, LithifyError
from lithify.text.json_fields import RepeatedField, once

if TYPE_CHECKING:
    import pyarrow as pa

    from lithify.cli.command import AnyLake

command = Commands("Lake and tables")
BYTES, DEFAULT = "_bytes", "default"
BACK = "back to the lake's default: "

KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="COLUMN", help="A key column; repeat it for a key of several columns."),
]
OrderByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--order-by",
        metavar="COLUMN",
        help="For late events: the highest value of this column wins for a key; of equal ones the highest of the next, "
        "--order-by at,lsn.",
    ),
]
ColumnsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        "-c",
        metavar="NAME:TYPE",
        help="A column, e.g. amount:decimal(10,2); `!` after the type: required. Repeat it.",
    ),
]
TimeOption = Annotated[
    str | None, typer.Option("--time", metavar="COLUMN", help="Time column: base is partitioned by its day.")
]
PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition-by", metavar="COLUMN", help="A partition column of base; repeat it."),
]
OrderGroupOption = Annotated[
    list[str] | None,
    typer.Option(
        "--order-group",
        metavar="ORDER=COLUMN,COLUMN",
        help="Columns that come from the line with the highest value of ORDER, whatever the others of the row say; "
        "repeat it.",
    ),
]
MergeRuleOption = Annotated[
    list[str] | None,
    typer.Option(
        "--merge-rule",
        metavar="COLUMN=RULE",
        help="What becomes of a column when its row is written again: first, last_non_null, min, max, sum, count, "
        "append(n), or, and; repeat it.",
    ),
]
DefaultsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--default",
        metavar="COLUMN=VALUE",
        help="What a column gets in rows that are written without it; repeat it.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A table option, e.g. row_group_rows=65536; repeat it."),
]


@command("init", local=True)
def init(
    session: Session,
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="The lake's folder or address; else --lake.")
    ] = None,
) -> None:
    """Make a lake: a new or an empty folder that tables can live in, or such a prefix in a bucket.

    Examples:
        lithify init ./lake
        lithify init s3://bucket/lake
    """
    if path is not None:
        session.lake_given = path
    from lithify.lake.catalog import is_lake

    wanted = session.lake_place
    existed = wanted is not None and is_lake(wanted)
    with session.local_lake(create=True) as lake:
        document = {"lake": str(lake.path), "created": not existed}
        done = f"{lake.path} is a lake already" if existed else f"lake created in {lake.path}"
        session.out.message(done, document, f"Say where it is once: export LITHIFY_LAKE={lake.path}")


@command("create")
def create(
    session: Session,
    name: TableArgument,
    columns: ColumnsOption = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help='Columns from a JSON file: {"id": "int64", …}, or what describe --json printed.',
        ),
    ] = None,
    key: KeyOption = None,
    order_by: OrderByOption = None,
    time: TimeOption = None,
    partition_by: PartitionOption = None,
    merge_rule: MergeRuleOption = None,
    order_group: OrderGroupOption = None,
    default: DefaultsOption = None,
    options: SetOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the same table is there already.")
    ] = False,
) -> None:
    """Create a table.

    Types: int8 int16 int32 int64, float32, float64 (double), string, binary, bool, date, timestamp (UTC),
    timestamp_ntz, decimal(p,s), list<…>, struct<name:…,…>, map<…,…>. A `!` or `not null` after a type makes the
    column required. Key columns are always required. Without --key the table takes appends, and
    deletes by columns.

    Examples:
        lithify create shop.orders -c id:int64 -c "amount:decimal(10,2)" -c at:timestamp --key id --time at
        lithify create iot.readings -c device:string! -c at:timestamp -c value:double --time at
        lithify create web.pages -c page:string -c views:int64 -c seen:timestamp --key page --merge-rule views=sum
        lithify create shop.items -c id:int64 -c price:int64 -c seen:timestamp --key id --order-group seen=price
        lithify create shop.copy --schema orders.json --key id --set compression_level=9 --default status=new
    """
    arrow = schema_of(columns, schema)
    if arrow is None:
        raise InvalidRequest("a table needs columns: pass --column NAME:TYPE for each, or --schema FILE")
    chosen, rules, groups = options_of(options or ()), rules_in(merge_rule or ()), groups_in(order_group or ())
    defaults = _defaults_in(default or (), arrow)
    with session.lake() as lake:
        existed = if_not_exists and name in lake.tables()
        lake.create_table(
            name,
            arrow,
            key or None,
            names_in(order_by),
            time,
            tuple(partition_by or ()),
            if_not_exists,
            options=chosen,
            merge_rules=rules,
            order_groups=groups,
            defaults=defaults,
        )
        document = {**describe_document(lake, name), "created": not existed}
        what = f"table {name} is there already" if existed else f"table {name} created: {plural(len(arrow), 'column')}"
        session.out.message(what + (f", key {', '.join(key)}" if key else ", no key"), document)


@command("tables", plain=True)
def list_tables(session: Session) -> None:
    """List the lake's tables: how many rows are in base, how many changes are pending, and the seq.

    Examples:
        lithify tables
        lithify tables --json
    """
    with session.lake() as lake:
        rows = [_table_row(lake, name) for name in lake.tables()]
        columns = [
            TABLE,
            Column("base_rows", "rows in base", count_cell, right=True),
            Column("base_bytes", "size", bytes_cell, right=True),
            *counts(pending_rows="pending", seq="seq", watermark="watermark"),
        ]
        session.out.listing(
            columns,
            rows,
            {"lake": lake.path, "tables": rows},
            empty="no tables yet: `lithify create` or `lithify ingest --create` makes one",
        )
        session.out.problems([f"{row['table']}: {row['error']}" for row in rows if "error" in row])


@command("describe", plain=True)
def describe(session: Session, name: TableArgument) -> None:
    """Show a table: columns, key, settings, seq, watermark, pending changes, and where its base is.

    Examples:
        lithify describe shop.orders
    """
    with session.lake() as lake:
        document = describe_document(lake, name)
        base, pending = document["base"], document["pending"]
        fields = {
            "key": ", ".join(document["key"]) or "none (appends, and deletes by columns)",
            "order by": ", ".join(listed(document["order_by"])),
            "time": document["time"],
            "partitioned by": ", ".join(document["partition_by"]),
            "merge rules": ", ".join(f"{column}={rule}" for column, rule in document["merge_rules"].items()),
            "order groups": shown_groups(document["order_groups"]),
            "defaults": ", ".join(f"{column}={value}" for column, value in document["defaults"].items()),
            "schema fingerprint": document["schema_fingerprint"],
            "seq": document["seq"],
            "watermark": document["watermark"],
            "pending": _amount(pending, "change"),
            "base": _amount(base, "row"),
            "base path": base["path"],
            **document["settings"],
            **{option: _shown(option, value) for option, value in document["options"].items()},
        }
        columns = [
            Column("name", "column", style="bold"),
            Column("type", "type"),
            Column("nullable", "", lambda nullable: "" if nullable else "required"),
        ]
        session.out.record(name, {label: value for label, value in fields.items() if value not in (None, "")}, document)
        if not session.as_json:
            session.out.listing(columns, document["columns"], {}, empty="")


@command("partitions", plain=True)
def partitions(session: Session, name: TableArgument) -> None:
    """Show what base holds, partition by partition: files, rows, bytes, and the first and last time.

    Told by log and index alone, without opening a data file. Pending changes have no partition yet.

    Examples:
        lithify partitions shop.orders
        lithify partitions shop.orders --json
    """
    with session.lake() as lake:
        table = lake.table(name)
        snapshot = table.snapshot()
        found = table.partitions(snapshot)  # type: ignore[arg-type]  # each kind of table takes its own kind of snapshot
        by, time = snapshot.schema.partitions, snapshot.schema.time
        columns = [
            *(Column(f"values.{column}", column, _partition_value, style="bold", wrap=column != DAY) for column in by),
            Column("files", "files", count_cell, right=True),
            Column("rows", "rows", _known_count, right=True),
            Column("size_bytes", "size", bytes_cell, right=True),
            *(
                (Column("time_min", f"first {time}", _moment), Column("time_max", f"last {time}", _moment))
                if time
                else ()
            ),
        ]
        rows = [dataclasses.asdict(part) for part in found]
        pending = {"files": snapshot.pending_files, "rows": snapshot.pending_rows, "bytes": snapshot.pending_bytes}
        document = {
            "table": name,
            "seq": snapshot.seq,
            "partition_by": list(by),
            "time": time,
            "partitions": rows,
            "pending": pending,
        }
        shown = [{**row, **{f"values.{column}": value for column, value in row["values"].items()}} for row in rows]
        empty = (
            "base holds no rows yet; fold the table first" if snapshot.pending_files else "the table holds no rows yet"
        )
        session.out.listing(columns, shown, document, empty=empty)
        if rows and not by:
            session.out.note(f"{name} is not partitioned: all of base is one")
        if snapshot.pending_files:
            session.out.note(f"{_amount(pending, 'pending change')}, not in these yet")


@command("set", local=True)
def set_table_options(
    session: Session,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="e.g. row_group_rows=65536 or pack_target_bytes=64MiB; =default resets it. A table goes before.",
            autocompletion=table_names,
        ),
    ] = None,
    as_it_is: Annotated[
        bool, typer.Option("--as-it-is", help="Take a lake's own file of settings as it is, once you have read it.")
    ] = False,
) -> None:
    """Set options of a table: how its files are laid out, how long its log is kept, how it is looked after.

    Without a table, settings of the lake, which hold for everybody who opens it; `lithify settings` shows them.

    Examples:
        lithify set shop.orders row_group_rows=65536 log_retain_hours=24
        lithify set shop.orders bloom_columns=none row_group_rows=default
        lithify set --lake ./lake fold_files_max=50 vacuum_retain_hours=24
        lithify set --lake ./lake --as-it-is
    """
    if as_it_is != (words is None):
        raise InvalidRequest("what is to be set? Write NAME=VALUE, or --as-it-is alone")
    if words is None:
        accept_lake_settings(session)
        return
    name, *options = words
    if "=" in name:
        set_lake_settings(session, options_of(words))
        return
    if not options:
        raise InvalidRequest(f"which option of {name}? Write NAME=VALUE behind it, e.g. row_group_rows=65536")
    chosen = options_of(options)
    with session.local_lake() as lake:
        table = lake.table(name)
        table.set_options(chosen)
        current = table.options
        now = "; ".join(
            f"{option} is {BACK if value == DEFAULT else ''}{_shown(option, current[option])}"
            for option, value in chosen.items()
        )
        session.out.message(f"{name}: {now}", describe_document(lake, name))


def options_of(pairs: Sequence[str]) -> dict[str, str]:
    """Sizes may have a unit where an option is in bytes: pack_target_bytes=64MiB."""
    chosen: dict[str, str] = {}
    for pair in pairs:
        option, equals, value = pair.partition("=")
        if not equals or not option.strip():
            raise InvalidRequest(f"{pair!r} is no table option: write NAME=VALUE, e.g. row_group_rows=65536")
        if option.strip() in chosen:
            raise InvalidRequest(f"table option {option.strip()} is given twice: give it once")
        size = parse_bytes(value) if BYTES in option else None
        chosen[option.strip()] = value.strip() if size is None else str(size)
    return chosen


def _defaults_in(texts: Sequence[str], columns: pa.Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column.strip():
            raise InvalidRequest(f"{text[:60]!r} is no default: write COLUMN=VALUE, e.g. status=new")
        if (name := column.strip()) in found:
            raise InvalidRequest(f"column {name!r} is given two defaults: give it one")
        found[name] = typed_default(value, name, columns)
    return found


def typed_default(text: str, column: str, columns: Iterable[pa.Field]) -> Any:
    """A default as somebody types it."""
    from lithify.core.json_rows import typed

    return next((typed(text, field.type) for field in columns if field.name == column), text)


@command("adopt", local=True)
def adopt(
    session: Session,
    name: TableArgument,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A Delta table, or a folder of Parquet files.")],
    key: KeyOption = None,
    order_by: OrderByOption = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Check that no key is null or stands twice.")
    ] = True,
) -> None:
    """Take an existing Delta table or folder of Parquet files as a table's base, without copying its data.

    Examples:
        lithify adopt shop.orders /data/orders --key id
        lithify adopt logs.events /data/events
    """
    with session.local_lake() as lake:
        with session.out.working(f"adopting {path}"):
            lake.adopt(name, path, key=key or None, order_by=names_in(order_by), verify=verify)
        document = describe_document(lake, name)
        session.out.message(f"{path} adopted as {name}: {plural(document['base']['rows'], 'row')}", document)
        base = lake.table(name).base_path
        if not base.is_relative_to(lake.path):
            session.out.aside(
                f"{base} stays where it is; others who open this lake have to allow it: LITHIFY_ALLOWED_PATHS={base}"
            )


@command("drop")
def drop(
    session: Session,
    name: TableArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Drop a table and delete its files. An adopted base is left where it is.

    Examples:
        lithify drop shop.orders --yes
    """
    with session.lake() as lake:
        stats = lake.table(name).stats()
        if not yes:
            if session.as_json or not sys.stdin.isatty():
                raise InvalidRequest(f"dropping {name} deletes its data: pass --yes to say that you mean it")
            contents = f"{plural(stats.base_rows, 'row')} in base and {plural(stats.pending_rows, 'pending change')}"
            typer.confirm(f"Drop {name} with {contents}?", abort=True, err=True)
        lake.drop_table(name)
        session.out.message(f"table {name} dropped", {"table": name, "dropped": True})


def names_in(texts: Sequence[str] | None) -> list[str] | None:
    """Names of columns, one or several in a text, with commas between them."""
    return [name.strip() for text in texts for name in text.split(",")] if texts else None


def listed(names: str | Sequence[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def schema_of(columns: Sequence[str] | None, file: str | None) -> pa.Schema | None:
    """The schema that --column and --schema ask for, or None if neither does."""
    import pyarrow as pa

    if columns and file:
        raise InvalidRequest("pass --column or --schema, not both")
    if file:
        return pa.schema([parse_column(text) for text in _schema_file(Path(file).expanduser())])
    return pa.schema([parse_column(text) for text in columns]) if columns else None


def _schema_file(path: Path) -> list[str]:
    from lithify.files.os_errors import translated

    with translated(path):
        text = path.read_text("utf-8")
    try:
        content = json.loads(text, object_pairs_hook=once)
        listed = content.get("columns", content) if isinstance(content, dict) else content
        if isinstance(listed, dict):
            return [f"{name}:{kind}" for name, kind in listed.items()]
        return [f"{c['name']}:{c['type']}" + ("" if c.get("nullable", True) else "!") for c in listed]
    except RepeatedField as error:
        raise InvalidRequest(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f'{path} holds no schema: write {{"id": "int64", "amount": "decimal(10,2)"}}') from error


def describe_document(lake: AnyLake, name: str) -> dict[str, Any]:
    from lithify.options.table_options import chosen, is_option

    table = lake.table(name)
    definition, sizes = table.definition, size_document(table.stats())
    return {
        "table": name,
        **definition_document(definition),
        "settings": {name: value for name, value in definition.settings.items() if not is_option(name)},
        "options": chosen(definition.settings),
        **sizes,
        "base": {**sizes["base"], "path": None if table.base_path is None else str(table.base_path)},
    }


def _table_row(lake: AnyLake, name: str) -> dict[str, Any]:
    """A damaged table is listed with its problem; the others are not its hostages."""
    try:
        stats = lake.table(name).stats()
    except LithifyError as error:
        return {"table": name, "error": error.message}
    return {
        "table": name,
        "base_rows": stats.base_rows,
        "base_bytes": stats.base_bytes,
        "pending_rows": stats.pending_rows,
        "pending_files": stats.pending_files,
        "seq": stats.seq,
        "watermark": stats.watermark,
    }


def _partition_value(value: Any) -> str:
    return "null" if value is None else cell(value)


def _known_count(value: int | None) -> str:
    return "unknown" if value is None else count_cell(value)


def _moment(value: Any) -> str:
    """The day stands in the same line, as `_day`."""
    return f"{value:%H:%M:%S}" if isinstance(value, dt.datetime) else cell(value)


def _amount(part: dict[str, Any], noun: str) -> str:
    return f"{plural(part['rows'], noun)} in {plural(part['files'], 'file')}, {human_bytes(part['bytes'])}"


def _shown(option: str, value: Any) -> str:
    if value is None:
        return "automatic"
    if isinstance(value, tuple):
        return (", ".join(value) if all(isinstance(item, str) for item in value) else dumps(value)) or "none"
    if BYTES in option and isinstance(value, int):
        return f"{value} ({human_bytes(value)})"
    return str(value)
