"""Rows of a query on their way out: a table in the terminal, or csv, json, ndjson, parquet on stdout or in a file."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from lithify.cli.command import Session
from lithify.cli.output import Column
from lithify.cli.values import human_seconds
from lithify.core.type_text import type_name
from lithify.core.wording import plural
from lithify.errors import InvalidRequest
from lithify.files.user_files import user_path

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN = 100


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
    chosen = format or _BY_SUFFIX.get(user_path(output).suffix.lower())
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
        _to_file(rows, format, user_path(output))
        written = {**document, "output": output, "format": format, "rows_written": rows.num_rows}
        session.out.message(f"{plural(rows.num_rows, 'row')} written to {output}", written)
    elif session.as_json:
        from lithify.core.json_rows import records
        from lithify.text.rows_out import check_names

        check_names(rows)
        session.out.record("", {}, {**document, "rows": records(rows)})
    elif format == "table":
        _to_terminal(session, rows, total, seconds, cut)
    else:
        _to_stdout(rows, format)


def _to_terminal(session: Session, rows: pa.Table, total: int, seconds: float, cut: bool) -> None:
    from lithify.core.column_types import type_of

    columns = [Column(str(n), f.name, right=type_of(f.type).is_number) for n, f in enumerate(rows.schema)]
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

        from lithify.text.rows_out import check_names

        sink = pa.BufferOutputStream()
        check_names(rows)
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

                from lithify.text.rows_out import check_names

                check_names(rows)
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
    from lithify.text import rows_out

    if format != "csv":
        rows_out.check_names(rows)
    made = {"csv": rows_out.csv, "ndjson": rows_out.ndjson}.get(format, rows_out.json_array)
    for piece in made(rows):
        file.write(piece.decode())
