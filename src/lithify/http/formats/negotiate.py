"""Which format a request comes in (Content-Type) and which one its answer takes (Accept)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from starlette.responses import Response, StreamingResponse

from lithify.core.evolve import columns_besides
from lithify.core.json_rows import check_values, rows_of_document, table_of
from lithify.errors import InvalidRequest
from lithify.files.text_files import new_columns, read_text
from lithify.http.bodies import json_of
from lithify.http.errors import Refusal
from lithify.http.formats.arrow_in import check_expanded, read_stream, schema_of_stream
from lithify.text import rows_out
from lithify.text.text_rows import Target

JSON, NDJSON = "application/json", "application/x-ndjson"
CSV, ARROW = "text/csv", "application/vnd.apache.arrow.stream"
ANSWERS = (JSON, NDJSON, CSV, ARROW)
BODIES = (JSON, NDJSON, CSV, ARROW)
# Answers up to this size go out in one piece, with their length.
WHOLE_BYTES_MAX = 4 * 2**20
# Full rows in the table's own types may take more than the body that they came in, but not without end.
EXPANSION_MAX = 4
HEADER = "X-Lithify-"


def accepted(accept: str | None) -> str:
    """The format that the client likes best; of several, the first of `ANSWERS`."""
    if accept is None or not accept.strip():
        return JSON
    ranges = [_range(part) for part in accept.split(",")[:100]]
    best, best_q = "", 0.0
    for kind in ANSWERS:
        # The most specific range that fits decides.
        fitting = [(len(pattern), q) for pattern, q in ranges if _fits(kind, pattern)]
        q = max(fitting)[1] if fitting else 0.0
        if q > best_q:
            best, best_q = kind, q
    if not best:
        raise Refusal(406, f"answers come as {', '.join(ANSWERS)}: accept one of these")
    return best


def _range(part: str) -> tuple[str, float]:
    pattern, *parameters = (piece.strip().lower() for piece in part.split(";"))
    q = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            q = 0.0
            with contextlib.suppress(ValueError):
                q = min(1.0, max(0.0, float(value)))
    return pattern, q


def _fits(kind: str, pattern: str) -> bool:
    return pattern in (kind, "*/*") or (pattern.endswith("/*") and kind.startswith(pattern[:-1]))


def media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def charset(content_type: str | None) -> str | None:
    """The encoding that a Content-Type declares."""
    for part in (content_type or "").split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"') or None
    return None


def check_json(content_type: str | None) -> None:
    if media_type(content_type) != JSON:
        raise Refusal(415, f"this takes {JSON}: say so in Content-Type")


# JSON becomes many times larger while it is read, and is no faster read by many threads at once.
LARGE_BYTES = 4 * 2**20
_large = threading.Lock()


def read_rows(data: bytes, content_type: str | None, columns: pa.Schema, bytes_max: int) -> pa.Table:
    """The rows of a body, bounded before they are unpacked. Not checked against the table yet."""
    one_by_one = _large if len(data) > LARGE_BYTES else contextlib.nullcontext()
    match media_type(content_type):
        case "application/json":
            with one_by_one:
                check_values(data)
                rows = table_of(rows_of_document(json_of(data), data), columns)
        case "application/x-ndjson" | "application/jsonl" | "application/x-jsonlines":
            with one_by_one:
                rows = _text(data, "json", charset(content_type), columns)
        case "text/csv":
            with one_by_one:
                rows = _text(data, "csv", charset(content_type), columns)
        case "application/vnd.apache.arrow.stream":
            rows = read_stream(data, columns, bytes_max)
        case _:
            raise Refusal(415, f"rows come as {', '.join(BODIES)}: say which in Content-Type")
    check_expanded(rows, columns, EXPANSION_MAX * bytes_max)
    return rows


def with_new_columns(data: bytes, content_type: str | None, columns: pa.Schema) -> pa.Schema:
    """`columns`, and those that the body has besides, by their values. Its rows are not looked at otherwise."""
    match media_type(content_type):
        case "application/json":
            check_values(data)
            rows = rows_of_document(json_of(data), data).rows
            found = columns_besides(rows, columns.names) if all(isinstance(row, dict) for row in rows) else []
        case "application/x-ndjson" | "application/jsonl" | "application/x-jsonlines":
            check_values(data)
            found = list(new_columns(data, "the body", "json", columns, charset(content_type), unpack=False))
        case "text/csv":
            check_values(data)
            found = list(new_columns(data, "the body", "csv", columns, charset(content_type), unpack=False))
        case "application/vnd.apache.arrow.stream":
            found = [f for f in schema_of_stream(data) if f.name not in columns.names]
        case _:
            found = []  # which is refused when the rows are read
    return pa.schema([*columns, *found])


def _text(data: bytes, kind: str, encoding: str | None, columns: pa.Schema) -> pa.Table:
    """Records of lines. The first one that is no row is named, without its value."""
    check_values(data)
    rows, bad = read_text(data, "the body", kind, Target(columns, first_bad=True), encoding, unpack=False)
    if bad:
        raise InvalidRequest(bad[0].public)
    if not rows.num_rows:
        raise InvalidRequest("the batch is empty: give at least one row")
    return rows


def answered(rows: pa.Table, kind: str, document: Mapping[str, Any], facts: Mapping[str, str]) -> Response:
    """Rows in the chosen format. `document`: what stands beside them in JSON; `facts`: headers, in every format."""
    headers = {HEADER + name: value for name, value in facts.items()} | {"Vary": "Accept"}
    match kind:
        case "application/json":
            pieces: Iterator[bytes] = rows_out.json_document(dict(document), rows)
        case "application/x-ndjson":
            rows_out.check_names(rows, ", or ask for application/json or Arrow")
            pieces = rows_out.ndjson(rows)
        case "text/csv":
            pieces = rows_out.csv(rows)
        case _:
            pieces = rows_out.arrow_stream(rows)
    content_type = "text/csv; charset=utf-8; header=present" if kind == CSV else kind
    if rows.nbytes <= WHOLE_BYTES_MAX:
        return Response(b"".join(pieces), headers=headers, media_type=content_type)
    return StreamingResponse(pieces, headers=headers, media_type=content_type)
