"""Rows of a query on their way out: a table in the terminal, or csv, json, ndjson, parquet on stdout or in a file."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from lithify.cli.command import Session
from lithify.cli.output import Column
from lithify.cli.values import cell, human_seconds
from lithify.core.json_out import dumps, jsonable
from lithify.core.types import type_name
from lithify.core.wording import plural
from lithify.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN = 100
BATCH_ROWS = 10_000


RowFormat = Literal["table", "csv", "json", "ndjson", "parquet"]

FormatOption = Annotated[
    RowFormat | None,
    typer.Option("--format", "-f", help="How the rows come. Default: by the name of --output, else a table."),
]
OutputOption = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the rows to a file.")]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", min=0, help=f"Rows at most. Default: {ROWS_SHOWN} in a table, otherwise all; 0: all."
    ),
]
_BY_SUFFIX: dict[str, RowFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
}


def check_format(session: Session, format: RowFormat | None, output: str | None) -> RowFormat:
    """Decide before the work is done, so that a wrong option costs nothing."""
    if output is None:
        if session.as_json and format is not None:
            raise InvalidRequest(
                "--json answers with one document: leave --format out, or write the rows to a file with --output"
            )
        if format == "parquet" and sys.stdout.isatty():
            raise InvalidRequest("Parquet is binary: write it to a file with --output FILE, or into a pipe")
        return format or "table"
    chosen = format or _BY_SUFFIX.get(Path(output).suffix.lower())
    if chosen is None:
        raise InvalidRequest(f"--output {output}: say which --format, or end the name with {', '.join(_BY_SUFFIX)}")
    return chosen


def rows_wanted(session: Session, format: RowFormat, output: str | None, limit: int | None) -> int | None:
    """How many rows are shown at most; None: all."""
    if limit is None and format == "table" and not session.as_json and output is None:
        return ROWS_SHOWN
    return limit or None


def write_rows(
    session: Session,
    rows: pa.Table,
    format: RowFormat,
    output: str | None,
    limit: int | None,
    seconds: float,
    facts: Mapping[str, Any] | None = None,
    *,
    cut: bool = False,
) -> None:
    """`cut`: there are more rows than these."""
    total = rows.num_rows
    if wanted := rows_wanted(session, format, output, limit):
        rows = rows.slice(0, wanted)
    document: dict[str, Any] = {
        **(facts or {}),
        "columns": [{"name": f.name, "type": type_name(f.type)} for f in rows.schema],
        "row_count": total,
        **({"cut": True} if cut else {}),
        "seconds": round(seconds, 6),
    }
    if output is not None:
        _to_file(rows, format, Path(output).expanduser())
        written = {**document, "output": output, "format": format, "rows_written": rows.num_rows}
        session.out.message(f"{plural(rows.num_rows, 'row')} written to {output}", written)
    elif session.as_json:
        _check_names(rows)
        session.out.record("", {}, {**document, "rows": to_records(rows)})
    elif format == "table":
        _to_terminal(session, rows, total, seconds, cut)
    else:
        _to_stdout(rows, format)


def to_records(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as dicts, maps as objects; `dumps` spells their values."""
    return [record for batch in _records(rows) for record in batch]


def _to_terminal(session: Session, rows: pa.Table, total: int, seconds: float, cut: bool) -> None:
    columns = [Column(str(n), f.name, right=_is_number(f.type)) for n, f in enumerate(rows.schema)]
    values = [column.to_pylist() for column in rows.columns]
    lines = [{str(n): column[row] for n, column in enumerate(values)} for row in range(rows.num_rows)]
    session.out.listing(columns, lines, {}, empty=f"no rows ({', '.join(rows.column_names)})")
    if cut:
        count = f"{rows.num_rows:,} of more than {plural(total, 'row')} shown"
    elif rows.num_rows == total:
        count = plural(total, "row")
    else:
        count = f"{rows.num_rows:,} of {plural(total, 'row')} shown (--limit 0 shows all)"
    if total:
        session.out.note(f"{count}, {human_seconds(seconds)}")


def _to_stdout(rows: pa.Table, format: RowFormat) -> None:
    if format == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        _check_names(rows)
        pq.write_table(rows, sink)
        sys.stdout.buffer.write(sink.getvalue())
        sys.stdout.buffer.flush()
        return
    _write_text(rows, format, sys.stdout)
    sys.stdout.flush()


def _to_file(rows: pa.Table, format: RowFormat, path: Path) -> None:
    """The file is there as a whole or not at all."""
    from lithify.files.os_errors import translated

    with translated(path):
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            if format == "parquet":
                import pyarrow.parquet as pq

                _check_names(rows)
                pq.write_table(rows, name)
            else:
                with open(name, "w", encoding="utf-8", newline="") as file:
                    _write_text(rows, "csv" if format == "table" else format, file)
            os.chmod(name, 0o644)
            os.replace(name, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def _write_text(rows: pa.Table, format: RowFormat, file: IO[str]) -> None:
    if format == "csv":
        file.write(_csv_line(rows.column_names))
        for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
            columns = [column.to_pylist() for column in batch.columns]
            file.writelines(_csv_line(line) for line in zip(*columns, strict=True))
        return
    _check_names(rows)
    if format == "ndjson":
        for records in _records(rows):
            file.writelines(dumps(record) + "\n" for record in records)
        return
    file.write("[")
    separator = "\n"
    for records in _records(rows):
        for record in records:
            file.write(f"{separator}  {dumps(record)}")
            separator = ",\n"
    file.write("\n]\n" if rows.num_rows else "]\n")


def _records(rows: pa.Table) -> Iterator[list[dict[str, Any]]]:
    import pyarrow as pa

    maps = [f.name for f in rows.schema if pa.types.is_map(f.type)]
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        records = batch.to_pylist()
        for name in maps:
            for record in records:
                record[name] = _map_object(record[name])
        yield records


def _map_object(pairs: Any) -> Any:
    """A map with text keys is a JSON object; any other one a list of pairs."""
    if pairs is None or not all(isinstance(key, str) for key, _ in pairs):
        return pairs
    return dict(pairs)


def _csv_line(values: Any) -> str:
    return ",".join(_csv_field(value) for value in values) + "\n"


def _csv_field(value: Any) -> str:
    """Null is nothing at all, empty text is two quotes: a reader can tell them apart."""
    if value is None:
        return ""
    if isinstance(value, list | dict | tuple):
        text = dumps(value)
    elif isinstance(value, bool):
        text = cell(value)
    else:
        text = str(jsonable(value))
    if text == "" or any(c in text for c in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _check_names(rows: pa.Table) -> None:
    names = rows.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidRequest(f"two columns of the result are called {twice!r}: give one another name (… AS other_name)")


def _is_number(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
