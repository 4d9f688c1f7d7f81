"""Reading files into typed rows on Spark, with every record that does not fit kept and explained.

CSV and JSON fields are read as text and converted with `try_cast`, so that a value that does not fit is seen
instead of becoming null.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import IO

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from lithify.errors import InvalidRequest
from lithify.spark.tasks import SPARK_ERRORS, compute_failed
from lithify.spark.types import arrow_schema, spark_schema

CORRUPT, WHY, FILE, RECORD = "_lithify_corrupt", "_lithify_why", "_lithify_file", "_lithify_record"
MODIFIED = "_lithify_modified"
EXAMPLES_MAX = 5


@dataclass(frozen=True)
class BadRecord:
    file: str
    line: int | None
    why: str
    record: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line is not None else self.file
        record = self.record if len(self.record) <= 120 else self.record[:117] + "..."
        return f"{place}: {self.why}: {record}"


def infer(spark: SparkSession, files: Sequence[str], kind: str) -> pa.Schema:
    """The columns that Spark sees in the files."""
    try:
        if kind == "csv":
            frame = spark.read.option("header", True).option("inferSchema", True).csv(list(files))
        elif kind == "json":
            frame = spark.read.json(list(files))
        else:
            frame = spark.read.option("mergeSchema", True).parquet(*files)
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    schema = arrow_schema(frame.schema)
    if "_corrupt_record" in schema.names:
        schema = schema.remove(schema.get_field_index("_corrupt_record"))
    if kind == "csv":
        # The next file may hold larger numbers than those seen in this one.
        schema = pa.schema([f.with_type(pa.int64()) if pa.types.is_int32(f.type) else f for f in schema])
    if not len(schema):
        raise InvalidRequest(f"no columns could be found in {files[0]}: is it really {kind}?")
    return schema


def read_typed(
    spark: SparkSession,
    files: Sequence[str],
    kind: str,
    columns: pa.Schema,
    required: Sequence[str],
    *,
    others: bool = False,
) -> DataFrame:
    """Rows of `columns` (those that the files have), plus why a row is bad, its file and its text for CSV and JSON.

    `others`: the files may have further columns, which are passed over; else that is refused.
    """
    try:
        if kind == "parquet":
            frame = spark.read.option("mergeSchema", True).parquet(*files)
            if others:
                names = [F.col(f"`{name}`") for name in frame.columns if name in columns.names]
                return frame.select(*names, *_places())
            _check_names(frame.columns, columns, files[0])
            return frame
        target = spark_schema(columns)
        if kind == "csv":
            groups = _by_header(files, None if others else columns)
            parts = [_csv(spark, group, header, target) for header, group in groups.items()]
        else:
            parts = [_json(spark, files, target, others=others)]
        typed = [_typed(part, target, required) for part in parts]
        return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), typed)
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error


def _csv(spark: SparkSession, files: Sequence[str], header: Sequence[str], target: StructType) -> DataFrame:
    known = [name for name in header if name in target.names]
    nested = [name for name in known if isinstance(target[name].dataType, StructType | ArrayType | MapType)]
    if nested:
        raise InvalidRequest(
            f"column {nested[0]!r} is {target[nested[0]].dataType.simpleString()}, which CSV cannot hold: use "
            "JSON or Parquet"
        )
    schema = StructType([StructField(name, StringType()) for name in header] + [StructField(CORRUPT, StringType())])
    reader = spark.read.schema(schema).option("header", True).option("mode", "PERMISSIVE")
    reader = reader.option("columnNameOfCorruptRecord", CORRUPT).option("escape", '"')
    return reader.csv(list(files)).select("*", *_places())


def _json(spark: SparkSession, files: Sequence[str], target: StructType, *, others: bool) -> DataFrame:
    if others:
        seen = target.names
    else:
        seen = [name for name in spark.read.json(list(files)).columns if name != "_corrupt_record"]
        _check_names(seen, arrow_schema(target), files[0])
        seen = seen or target.names  # no record at all: Spark does not read a frame of nothing but malformed ones
    fields = [
        StructField(f.name, f.dataType if _as_it_is(f.dataType) else StringType()) for f in target if f.name in seen
    ]
    reader = spark.read.schema(StructType([*fields, StructField(CORRUPT, StringType())])).option("mode", "PERMISSIVE")
    return reader.option("columnNameOfCorruptRecord", CORRUPT).json(list(files)).select("*", *_places())


def _places() -> list[Column]:
    """Which file a row is of, and when that was last written."""
    return [F.col("_metadata.file_path").alias(FILE), F.col("_metadata.file_modification_time").alias(MODIFIED)]


def _as_it_is(kind: DataType) -> bool:
    return isinstance(kind, StringType | StructType | ArrayType | MapType)


def _typed(frame: DataFrame, target: StructType, required: Sequence[str]) -> DataFrame:
    names = [name for name in frame.columns if name in target.names]
    text = {name: F.col(f"`{name}`") for name in names}
    value = {name: _converted(text[name], target[name].dataType) for name in names}
    reasons: list[Column] = [F.when(F.col(CORRUPT).isNotNull(), F.lit("the record is malformed"))]
    for name in names:
        kind = target[name].dataType
        if not _as_it_is(kind):
            lost = text[name].isNotNull() & value[name].isNull()
            shown = F.concat(
                F.lit(f"column {name!r} does not fit {kind.simpleString()}: "), F.substring(text[name], 1, 60)
            )
            reasons.append(F.when(lost, shown))
    reasons += [
        F.when(text[name].isNull(), F.lit(f"key column {name!r} is null")) for name in required if name in names
    ]
    record = F.coalesce(F.col(CORRUPT), F.to_json(F.struct(*[text[name].alias(name) for name in names])))
    return frame.select(
        *[value[name].alias(name) for name in names],
        F.coalesce(*reasons).alias(WHY),
        F.col(FILE),
        F.col(MODIFIED),
        record.alias(RECORD),
    )


def _converted(text: Column, kind: DataType) -> Column:
    if _as_it_is(kind):
        return text
    if isinstance(kind, BinaryType):
        return F.try_to_binary(text, F.lit("base64"))
    value = text.try_cast(kind)
    if isinstance(kind, DecimalType):
        # A plain cast would round digits away.
        exact = text.try_cast(DecimalType(38, 18))
        return F.when(exact.isNull() | (value.cast(DecimalType(38, 18)) == exact), value)
    return value


def _by_header(files: Sequence[str], columns: pa.Schema | None) -> dict[tuple[str, ...], list[str]]:
    """`columns`: those that a file may have; None: any."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        with _text(file) as lines:
            header = tuple(next(csv.reader(lines), []))
        if not header:
            raise InvalidRequest(f"{file} is empty: a CSV file starts with a line of column names")
        if columns is not None:
            _check_names(header, columns, file)
        groups.setdefault(header, []).append(file)
    return groups


def _check_names(names: Iterable[str], columns: pa.Schema, file: str) -> None:
    seen: set[str] = set()
    for name in names:
        if columns.get_field_index(name) < 0:
            raise InvalidRequest(
                f"{file} has a column {name!r} that the table does not have: it has {', '.join(columns.names)}"
            )
        if name in seen:
            raise InvalidRequest(f"{file} has the column {name!r} twice: rename one")
        seen.add(name)


def bad_examples(frame: DataFrame, kind: str) -> list[BadRecord]:
    """The first few bad records with their place."""
    try:
        rows = frame.where(F.col(WHY).isNotNull()).select(WHY, FILE, RECORD).limit(EXAMPLES_MAX).collect()
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    found = []
    for row in rows:
        file = local_name(row[FILE])
        found.append(BadRecord(file, _line_of(file, row[RECORD], kind), row[WHY], row[RECORD] or ""))
    return found


def local_name(uri: str) -> str:
    from urllib.parse import unquote, urlsplit

    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


def _line_of(file: str, record: str, kind: str) -> int | None:
    """Spark does not say which line a record was; look for it again, only when something is wrong."""
    try:
        with _text(file) as lines:
            if kind == "json":
                return next((n for n, line in enumerate(lines, 1) if _same_json(line.strip(), record)), None)
            reader = csv.reader(lines)
            header = next(reader, [])
            wanted = _fields(record)
            for fields in reader:
                if (wanted is None and ",".join(fields) == record) or (
                    wanted is not None and _row(header, fields) == wanted
                ):
                    return reader.line_num
    except (OSError, UnicodeError, csv.Error):
        return None
    return None


def _same_json(line: str, record: str) -> bool:
    if line == record:
        return True
    try:
        given, wanted = json.loads(line), json.loads(record)
    except ValueError:
        return False
    if not isinstance(given, dict) or not isinstance(wanted, dict):
        return False
    return {k: str(v) for k, v in given.items() if v is not None} == {k: str(v) for k, v in wanted.items()}


def _fields(record: str) -> dict[str, str] | None:
    try:
        parsed = json.loads(record)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _row(header: Sequence[str], fields: Sequence[str]) -> dict[str, str]:
    return {name: value for name, value in zip(header, fields, strict=False) if value != ""}


def _text(file: str) -> IO[str]:
    if file.endswith(".gz"):
        return gzip.open(file, "rt", encoding="utf-8", newline="")
    return Path(file).open(encoding="utf-8", newline="")


def write_quarantine(frame: DataFrame, folder: Path) -> Iterator[Path]:
    """Bad records as JSON lines: file, why, record."""
    bad = frame.where(F.col(WHY).isNotNull()).select(
        F.col(FILE).alias("file"), F.col(WHY).alias("why"), F.col(RECORD).alias("record")
    )
    try:
        bad.write.mode("errorifexists").json(str(folder))
    except SPARK_ERRORS as error:
        raise compute_failed(error) from error
    yield from folder.glob("*.json")


def good_rows(frame: DataFrame) -> DataFrame:
    if WHY not in frame.columns:
        return frame
    return frame.where(F.col(WHY).isNull()).drop(WHY, FILE, MODIFIED, RECORD)
