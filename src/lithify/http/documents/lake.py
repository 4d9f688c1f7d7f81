"""Documents about the lake as a whole, and about tokens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lithify.core.fields import Bytes, Seconds
from lithify.http.documents.tables import AboutTable, AnswerColumn, Document
from lithify.http.series import Unit
from lithify.http.tokens import Scope, Token


class CallerDocument(Document):
    """A token, without its secret."""

    id: str = Field(description="Its id.", examples=["5f3a0c1d"])
    name: str = Field(description="Its name, which the history records.", examples=["dashboard"])
    scopes: list[Scope] = Field(description="What it may do; admin includes all others.", examples=[["read"]])
    tables: list[str] = Field(description="The tables it is for, namespace.* among them; empty: all.")
    created_at: float = Field(description="When it was made, in seconds since 1970.")
    expires_at: float | None = Field(description="When it ends by itself, in seconds since 1970; null: never.")


class SessionDocument(CallerDocument):
    """A token for the console, and its secret."""

    secret: str = Field(description="What goes into the header `Authorization: Bearer …`; shown only now.")


class DiskDocument(Document):
    """The disk that the lake lies on."""

    bytes: Bytes = Field(description="Its size.")
    free_bytes: Bytes = Field(description="What the service may still use of it.")


class LakeDocument(Document):
    """The lake, this service, and who asks."""

    name: str = Field(description="The last part of the lake's place.", examples=["lake"])
    version: str = Field(description="The version of Lithify that answers.", examples=["0.1.0"])
    storage: Literal["folder", "bucket"] = Field(description="Where the lake lies.")
    disk: DiskDocument | None = Field(description="Its disk; null in a bucket.")
    caller: CallerDocument = Field(description="The token of this request.")


class LineDocument(Document):
    """One thing over time."""

    name: str = Field(description="Its name.", examples=["pending_rows"])
    what: str = Field(description="What it is.")
    unit: Unit = Field(description="What its values are.")
    values: list[float | None] = Field(description="One for each of `times`; null where there was nothing to tell.")


class SeriesDocument(Document):
    """What the service did over the last hours."""

    interval_s: Seconds = Field(description="Seconds between two samples.", examples=[10])
    times: list[float] = Field(description="When samples were taken, in seconds since 1970.")
    lines: list[LineDocument] = Field(description="What they say, of tables that are open in this service.")


class TableColumns(AboutTable):
    """A table's columns."""

    columns: list[AnswerColumn] = Field(description="In their order.")


class SchemaDocument(Document):
    """Tables with their columns."""

    tables: list[TableColumns] = Field(description="By name, at most `limit` of them.")
    more: bool = Field(description="Whether there are more: ask `after` the last one.")
    unreadable: list[str] = Field(description="Tables among them that cannot be looked at.")


def caller_document(token: Token) -> CallerDocument:
    return CallerDocument.model_validate(token.document())
