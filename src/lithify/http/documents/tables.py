"""What requests ask for and what answers say, about tables, rows and queries, with an example of each.

Requests are taken strictly: a field that is not known, or a number in the place of a text, is refused rather than
guessed at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from lithify.core.fields import Documented, Example
from lithify.core.results import Commit, TableExplanation
from lithify.core.schema import normalise
from lithify.core.type_text import parse_type, type_name
from lithify.errors import InvalidRequest
from lithify.sql.limits import RunningQuery

SQL_LENGTH_MAX = 200_000
COLUMNS_MAX = 5_000
KEYS_MAX = 100_000
QUERY_ID = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _encodable(text: str) -> str:
    """Half a surrogate pair is legal in JSON and no text anywhere else."""
    text.encode()
    return text


Text = Annotated[str, AfterValidator(_encodable)]
AsOf = Annotated[int, Field(ge=0, le=2**63 - 1)] | Annotated[Text, Field(min_length=1, max_length=64)]
Sql = Annotated[Text, Field(min_length=1, max_length=SQL_LENGTH_MAX)]
Scalar = bool | int | float | Text | None
Reason = Annotated[Text, Field(max_length=1_000)]


class Order(BaseModel):
    """A request's body. A field that nobody knows is refused: it is most likely misspelled."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Document(BaseModel):
    """An answer, made from a value with the same fields."""

    model_config = ConfigDict(from_attributes=True)


class AboutTable(Document):
    """An answer about one table."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])


# -- tables


class ColumnDocument(Order):
    """A column of a table."""

    name: Text = Field(description="Its name.", examples=["amount"], max_length=255)
    type: Text = Field(
        description="int8, int16, int32, int64, float32, float64, string, binary, bool, date, timestamp (UTC), "
        "timestamp_ntz, decimal(p,s), list<…>, struct<name:…,…> or map<…,…>; `!` after an inner type: required.",
        examples=["decimal(10,2)"],
        max_length=10_000,
    )
    nullable: bool = Field(True, description="Whether it may be null. Key columns never may.")


class CreateTable(Order):
    """A table to be created."""

    name: Text = Field(description="namespace.table", examples=["shop.orders"], max_length=257)
    columns: list[ColumnDocument] = Field(description="Its columns, in order.", min_length=1, max_length=COLUMNS_MAX)
    key: list[Text] = Field(
        [], description="Columns that tell rows apart. Without them the table takes appends only.", max_length=100
    )
    order_by: Text | list[Text] | None = Field(
        None,
        description="For late events: of two rows with the same key the one with the higher value here wins. Several "
        "columns: of equal values those of the next decide.",
    )
    time: Text | None = Field(None, description="Time column: base is partitioned by its day.")
    partition_by: list[Text] = Field([], description="Partition columns of base.", max_length=100)
    merge_rules: dict[Text, Text] = Field(
        {},
        description="What becomes of a column when its row is written again: first, last_non_null, min, max, sum, "
        "count, append(n), or, and; last for all others.",
        examples=[{"total": "sum", "seen": "max"}],
    )
    order_groups: dict[Text, list[Text]] = Field(
        {},
        description="Columns that several sources feed into one row, by the column that tells which line of them is "
        "newest; a line with null there says nothing of them.",
        examples=[{"price_ts": ["price", "currency"], "stock_ts": ["stock"]}],
    )
    defaults: dict[Text, Scalar] = Field(
        {},
        description="What columns get in rows that are written without them, as JSON spells their values.",
        examples=[{"status": "new"}],
    )
    options: dict[Text, Any] = Field({}, description="Table options, as listed in docs/settings.md.")
    if_not_exists: bool = Field(
        False, description="Answer 200 if the same table is there already, in place of 409. So does an Idempotency-Key."
    )


CREATE_EXAMPLE = {
    "name": "shop.orders",
    "columns": [
        {"name": "id", "type": "int64"},
        {"name": "amount", "type": "decimal(10,2)"},
        {"name": "status", "type": "string"},
    ],
    "key": ["id"],
}


class TablesDocument(Document):
    """The tables that this token may read."""

    tables: list[str] = Field(description="Their names, in order.", examples=[["shop.customers", "shop.orders"]])


class AmountDocument(Document):
    """How much is somewhere."""

    files: int = Field(description="Files.", examples=[2])
    rows: int = Field(description="Rows in them.", examples=[120_000])
    bytes: int = Field(description="Their size.", examples=[1_048_576])


class TableDocument(Document):
    """A table: its columns, its settings and its state."""

    table: str = Field(description="Its name.", examples=["shop.orders"])
    columns: list[ColumnDocument] = Field(description="Its columns, in order.")
    key: list[str] = Field(description="Columns that tell rows apart; none: it takes appends.", examples=[["id"]])
    order_by: str | list[str] | None = Field(
        description="Of two rows with the same key the one with the higher value here wins; of a list in turn."
    )
    time: str | None = Field(description="Time column, by whose day base is partitioned.")
    partition_by: list[str] = Field(description="Partition columns of base.")
    merge_rules: dict[str, str] = Field(
        {}, description="What becomes of a column when its row is written again, of those that say so."
    )
    order_groups: dict[str, list[str]] = Field(
        description="Columns that come from the newest line of their own, by the column that tells which that is.",
        examples=[{"price_ts": ["price", "currency"]}],
    )
    defaults: dict[str, Any] = Field(
        description="What columns get in rows that are written without them.", examples=[{"status": "new"}]
    )
    schema_fingerprint: str = Field(
        description="Changes with columns, types, nullability and key; send it as Lithify-Schema along with a write.",
        examples=["5f0c1d2b3a49586776859493a2b1c0de"],
    )
    options: dict[str, Any] = Field(description="Options that the table sets itself.")
    options_effective: dict[str, Any] = Field(description="Every option with the value that holds.")
    seq: int = Field(description="Number of its newest write.", examples=[42])
    watermark: int = Field(description="Number of the newest write that is folded into base.", examples=[40])
    pending: AmountDocument = Field(description="Changes that are not folded yet.")
    base: AmountDocument = Field(description="Rows as of the last fold.")


class CreatedTable(TableDocument):
    """A table, and whether it is new."""

    created: bool = Field(description="False: it was there already.")


class DroppedTable(Document):
    """A table that is gone."""

    table: str = Field(description="Its name.", examples=["shop.orders"])
    dropped: Literal[True] = Field(description="Its files are deleted; an adopted base stays where it is.")


# -- rows


COMMIT_EXAMPLE = {
    "table": "shop.orders",
    "seq": 42,
    "operation": "upsert",
    "rows": 2,
    "upserted": 2,
    "deleted": 0,
    "batch_id": "feed-2026-11-15",
    "replayed": False,
}


@dataclass(frozen=True)
class RefusedKey(Documented):
    """A key that was not deleted."""

    index: Annotated[int, "Its place in `keys`, from 0.", Example(1)]
    code: Annotated[str, "The kind of error.", Example("invalid_request")]
    message: Annotated[str, "What is wrong with it."]


@dataclass(frozen=True, kw_only=True)
class PartlyDeleted(Commit):
    """Some keys were deleted, in one commit; others were refused."""

    refused: Annotated[list[RefusedKey], "What was refused, and why."]


class DeleteKeys(Order):
    """Keys to delete."""

    keys: list[Any] = Field(
        description="Values of the key column; or objects (or lists) with a value for each key column. On a table with "
        "no key: objects of any columns, the same ones in all of them; every row that matches is deleted.",
        min_length=1,
        max_length=KEYS_MAX,
        examples=[[7, 9]],
    )
    at: Any = Field(
        None,
        description="When, as a value of the column order_by: one for all keys, or a list with one for each. With "
        "several columns each is an object with a value for every one of them, or a list in their order. "
        "Then no newer row is deleted, and an older one that comes later stays deleted.",
        examples=["2026-11-15T12:00:00Z"],
    )
    reason: Reason | None = Field(None, description="Why; kept in the history.", examples=["erasure request 118"])


class DeleteWhere(Order):
    """Which rows to delete."""

    condition: Sql = Field(description="A SQL condition over the table's columns.", examples=["status = 'test'"])
    reason: Reason | None = Field(None, description="Why; kept in the history.", examples=["test data"])


class RestoreOrder(Order):
    """Which version's rows are to come back."""

    to: AsOf = Field(description="A seq, a time in ISO 8601, or a tag.", examples=[40])
    reason: Reason | None = Field(None, description="Why; kept in the history.", examples=["a bad import"])
    dry_run: bool = Field(False, description="Only count what would be written and deleted.")


class RowDocument(AboutTable):
    """One row."""

    row: dict[str, Any] = Field(description="Its columns.", examples=[{"id": 1, "amount": "9.90", "status": "paid"}])


class AnswerColumn(Document):
    """A column of an answer."""

    name: str = Field(description="Its name.", examples=["amount"])
    type: str = Field(description="Its type.", examples=["decimal(10,2)"])


class ChangesDocument(AboutTable):
    """Changes in the order of their commits."""

    since: int = Field(description="The seq that was asked for.", examples=[40])
    next: int = Field(description="Ask for `since` this the next time.", examples=[42])
    more: bool = Field(description="There are more changes already: ask for them now.")
    row_count: int = Field(description="Rows in this answer.", examples=[1])
    columns: list[AnswerColumn] = Field(description="The table's columns, then _seq and _op (upsert, replace, delete).")
    rows: list[list[Any]] = Field(description="A delete holds the key only.", examples=[[[1, "9.90", 42, "upsert"]]])


class FeedDocument(AboutTable):
    """What commits did to the rows, in their order."""

    since: int = Field(description="The seq that was asked for.", examples=[40])
    next: int = Field(description="Ask for `since` this the next time.", examples=[42])
    more: bool = Field(description="There are more changes already: ask for them now.")
    row_count: int = Field(description="Rows in this answer.", examples=[1])
    columns: list[AnswerColumn] = Field(
        description="The table's columns, then _seq and _kind (insert, update or delete; with `before`, update_before "
        "and update_after)."
    )
    rows: list[list[Any]] = Field(
        description="A deleted row is shown as it was.", examples=[[[1, "9.90", 42, "insert"]]]
    )


# -- queries


class ExplainRequest(Order):
    """A query to look at."""

    sql: Sql = Field(
        description="One SELECT.", examples=["select status, count(*) as orders from shop.orders group by status"]
    )
    as_of: AsOf | None = Field(None, description="A seq, a time in ISO 8601, or a tag; default: now.", examples=[42])


class SqlRequest(ExplainRequest):
    """A query."""

    rows_max: int | None = Field(
        None, ge=1, description="Rows at most; it can only lower the setting query_rows_max.", examples=[100]
    )
    timeout_s: float | None = Field(
        None, gt=0, description="Seconds at most; it can only lower the setting query_timeout_s.", examples=[5]
    )
    id: str | None = Field(
        None, pattern=QUERY_ID, description="A name of your own, to cancel it by.", examples=["report-7"]
    )
    page_rows: int | None = Field(
        None, ge=1, description="Answer in pages of so many rows; `next` is the path of the next one.", examples=[1000]
    )


class ExecuteRequest(Order):
    """A statement that writes."""

    sql: Sql = Field(
        description="One INSERT, UPDATE, DELETE, MERGE, or statement about a table.",
        examples=["update shop.orders set status = $1 where id = $2"],
    )
    parameters: list[Scalar] | dict[Text, Scalar] | None = Field(
        None, description="Values for $1, $2, … or for :name; decimals and times as texts.", examples=[["paid", 7]]
    )
    dry_run: bool = Field(False, description="Only count.")
    reason: Reason | None = Field(None, description="Stands in the history.", examples=["erasure request 118"])
    timeout_s: float | None = Field(
        None, gt=0, description="Seconds at most; it can only lower the setting query_timeout_s.", examples=[5]
    )
    id: str | None = Field(
        None, pattern=QUERY_ID, description="A name of your own, to cancel it by.", examples=["report-7"]
    )


SQL_EXAMPLES = {
    "plain": {
        "summary": "A query",
        "value": {"sql": "select status, count(*) as orders from shop.orders group by status"},
    },
    "paged": {
        "summary": "In pages, of an earlier state, with limits",
        "value": {"sql": "select * from shop.orders", "as_of": 42, "page_rows": 1000, "timeout_s": 5, "id": "report-7"},
    },
}


class QueryAnswer(Document):
    """Rows, and how they came about."""

    id: str = Field(description="The query's id.", examples=["report-7"])
    columns: list[AnswerColumn] = Field(description="What the values of a row are.")
    row_count: int = Field(description="Rows in this answer, or on this page.", examples=[2])
    cut: bool = Field(description="There would have been more rows than the limit.")
    seconds: float = Field(description="How long it took.", examples=[0.012])
    source: str = Field(
        description="answer: kept from an earlier query; hot: from memory; files: read.", examples=["hot"]
    )
    snapshots: dict[str, int] = Field(
        description="Which state of each table it saw: name and seq.", examples=[{"shop.orders": 42}]
    )
    next: str | None = Field(
        None, description="Path of the next page, if there is one.", examples=["/v1/query/results/report-7?page=2"]
    )
    rows: list[list[Any]] = Field(description="Values in the order of columns.", examples=[[["paid", 3], ["new", 1]]])


class ExplainDocument(Document):
    """What a query would read, table by table."""

    tables: list[TableExplanation] = Field(description="In the order in which the query names them.")


class RunningQueries(Document):
    """Queries that run or wait."""

    queries: list[RunningQuery] = Field(description="Those of this token; for an admin all of them.")


class CancelledQuery(Document):
    """A query that is being stopped."""

    id: str = Field(description="Its id.", examples=["report-7"])
    cancelled: Literal[True] = Field(description="It ends with the error `cancelled`.")


# -- columns, as documents and as Arrow schemas


def schema_of(columns: Sequence[ColumnDocument]) -> pa.Schema:
    return pa.schema([pa.field(column.name, parse_type(column.type), column.nullable) for column in columns])


def answer_columns(schema: pa.Schema) -> list[dict[str, str]]:
    """Of an answer, whose types may be ones that no table has."""
    return [{"name": f.name, "type": _shown_type(f.type, f.name)} for f in schema]


def _shown_type(kind: pa.DataType, name: str) -> str:
    try:
        return type_name(normalise(kind, name))
    except InvalidRequest:
        return type_name(kind)
