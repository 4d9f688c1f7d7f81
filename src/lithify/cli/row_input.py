"""Rows and keys from files, stdin and arguments, as values that the table takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lithify.errors import Corruption, InvalidRequest
from lithify.text.json_fields import RepeatedField, once

if TYPE_CHECKING:
    import pyarrow as pa

    from lithify.core.schema import TableSchema

INPUT_BYTES_MAX = 2**30
STDIN = "-"
FORMATS = ("json", "csv", "parquet", "arrow")
PACKED = (".gz", ".zst", ".zstd", ".bz2")
_BY_SUFFIX = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


def read_rows(
    source: str, format: str | None, columns: pa.Schema, name: str, encoding: str | None = None, *, evolve: bool = False
) -> Any:
    """All rows of a file, or of stdin for `-`, ready for append, upsert or delete. `evolve`: with columns that the
    table does not have.
    """
    data = _read(source)
    match format or _format_of(source):
        case "json" | "csv" as kind:
            if evolve:
                columns = _with_new(data, kind, columns, _named(source), encoding)
            return _text(data, kind, columns, name, _named(source), encoding)
        case "parquet":
            return _parquet(data, source)
        case _:
            return _arrow(data, source)


def rows_of(texts: Sequence[str], columns: pa.Schema, name: str, *, evolve: bool = False) -> pa.Table:
    """Rows from JSON objects on the command line."""
    import pyarrow as pa

    parts = [text.encode("utf-8", "surrogateescape") for text in texts]
    if evolve:
        columns = _with_new(b"\n".join(parts), "json", columns, "--row")
    tables = [_text(part, "json", columns, name, f"--row {text}") for part, text in zip(parts, texts, strict=True)]
    return pa.concat_tables(tables, promote_options="default")


def _with_new(data: bytes, kind: str, columns: pa.Schema, label: str, encoding: str | None = None) -> pa.Schema:
    import pyarrow as pa

    from lithify.files.text_files import new_columns

    return pa.schema([*columns, *new_columns(data, label, kind, columns, encoding)])


def _text(data: bytes, kind: str, columns: pa.Schema, name: str, label: str, encoding: str | None = None) -> pa.Table:
    from lithify.files.text_files import read_text, refused
    from lithify.text.text_rows import Target

    rows, bad = read_text(data, label, kind, Target(columns), encoding)
    if bad:
        raise refused(bad, len(bad), name, "Correct the input, or set such records aside with `lithify ingest`")
    if not rows.num_rows:
        raise InvalidRequest(f"{label} is empty: it has no records")
    return rows


def keys_from_arguments(
    texts: Iterable[str], columns: pa.Schema, key: Sequence[str], table: str
) -> list[dict[str, Any]]:
    return [_key(text, columns, key, table) for text in texts]


def order_values(texts: Sequence[str], definition: TableSchema) -> Any:
    """A value for each column of order_by; where there are not as many, whoever is given them says so."""
    from lithify.core.json_rows import typed

    order = definition.order_columns
    if len(texts) != len(order):
        return texts[0] if len(texts) == 1 else tuple(texts)
    values = [typed(text, definition.columns.field(name).type) for name, text in zip(order, texts, strict=True)]
    return values[0] if len(values) == 1 else tuple(values)


def _key(text: str, columns: pa.Schema, key: Sequence[str], table: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        found: dict[str, Any] = _loads(text, f"key {text}")
        return found
    from lithify.core.column_types import type_of
    from lithify.core.json_rows import typed

    if len(key) == 1:
        kind, prefix = columns.field(key[0]).type, f"{key[0]}="
        if text.startswith(prefix) and not type_of(kind).is_text:
            text = text.removeprefix(prefix)
        return {key[0]: typed(text, kind)}
    parts: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals:
            wanted = ",".join(f"{k}=…" for k in key) or "column=value"
            raise InvalidRequest(
                f"key {text!r} of table {table}: write it as {wanted}, or as a JSON object if a value holds a comma"
            )
        if name not in columns.names:
            raise InvalidRequest(
                f"key {text!r}: table {table} has no column {name!r}; it has {', '.join(columns.names)}"
            )
        parts[name] = typed(value, columns.field(name).type)
    return parts


def _read(source: str) -> bytes:
    from lithify.files.os_errors import translated
    from lithify.files.user_files import user_path

    if source == STDIN:
        data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
    else:
        path = user_path(source)
        with translated(path):
            if path.is_dir():
                raise InvalidRequest(f"{path} is a folder: `lithify ingest` reads folders and many files")
            with path.open("rb") as file:
                data = file.read(INPUT_BYTES_MAX + 1)
    if len(data) > INPUT_BYTES_MAX:
        raise InvalidRequest(
            f"{_named(source)} is larger than {INPUT_BYTES_MAX // 2**30} GiB: load it with `lithify ingest`"
        )
    return data


def _format_of(source: str) -> str:
    if source == STDIN:
        return "json"
    path = Path(source.lower())
    suffix = Path(path.stem).suffix if path.suffix in PACKED else path.suffix
    if suffix not in _BY_SUFFIX:
        raise InvalidRequest(f"{source}: what is in it cannot be told from its name: pass --format {'|'.join(FORMATS)}")
    return _BY_SUFFIX[suffix]


def _loads(text: str | bytes, label: str) -> Any:
    def refuse(name: str) -> Any:
        raise InvalidRequest(f'{label}: {name} is not JSON: write it as text, "{name}"')

    try:
        return json.loads(text, parse_float=Decimal, parse_constant=refuse, object_pairs_hook=once)
    except RepeatedField as error:
        raise InvalidRequest(f"{label}: {error}") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{label}: not valid UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{label}: not JSON: {error}") from error


def _parquet(data: bytes, source: str) -> pa.Table:
    from lithify.files.open_parquet import read_bytes

    try:
        return read_bytes(data, _named(source))
    except Corruption as error:
        said = str(error.__cause__).splitlines()[0]
        raise InvalidRequest(f"{_named(source)} is no readable Parquet file: {said}") from error


def _arrow(data: bytes, source: str) -> pa.Table:
    import pyarrow as pa

    opened = pa.ipc.open_file if data.startswith(b"ARROW1") else pa.ipc.open_stream
    try:
        return opened(pa.BufferReader(data)).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequest(
            f"{_named(source)} is no readable Arrow file or stream: {str(error).splitlines()[0]}"
        ) from error


def _named(source: str) -> str:
    return "stdin" if source == STDIN else source
