"""Documents about erasures."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

from pydantic import Field

from lithify.http.documents.tables import Document, Order, Reason, Scalar, Sql, Text

KEYS_MAX = 10_000
ROWS_MAX_MAX = 1_000_000


class EraseOrder(Order):
    """Which rows are to be erased: by their keys, or by a condition that holds for them now."""

    table: Text = Field(description="The table.", examples=["shop.customers"], max_length=262)
    keys: list[Scalar | dict[Text, Scalar]] | None = Field(
        None, description="As for a delete.", min_length=1, max_length=KEYS_MAX, examples=[[42]]
    )
    where: Sql | None = Field(None, description="A condition in SQL, in place of keys; needs the scope read too.")
    history: Literal["rewrite", "cut"] = Field(
        "rewrite", description="What becomes of the past: every version stays without the rows, or nothing older does."
    )
    reason: Reason | None = Field(None, description="Stands on the receipt.", examples=["ticket-118"])
    rows_max: int = Field(1_000, description="More are refused.", ge=1, le=ROWS_MAX_MAX)


class BeginErasure(EraseOrder):
    """An erasure that is to begin."""

    break_pins: bool = Field(False, description="Take away pins, and before a cut tags, that would hold it up.")


class VerifyOrder(Order):
    """Whom a receipt is asked about."""

    key: Scalar | dict[Text, Scalar] = Field(None, description="The key that it should be about.")
    salt: Text | None = Field(None, description="The salt that came with the erasure.", max_length=128)


class ErasureDocument(Document):
    """An erasure, without values."""

    id: str = Field(description="Its id.", examples=["0f2c9a4be1d74c0c8f8a1b1f5c3f7d21"])
    table: str = Field(description="The table, as it was called then.", examples=["shop.customers"])
    state: Literal["open", "blocked", "leftover", "done", "cancelled"] = Field(description="How it stands.")
    step: str = Field(description="What is done next.", examples=["scan"])
    requested: dt.datetime = Field(description="When it was asked for.")
    reason: str | None = Field(description="As it was given.", examples=["ticket-118"])
    actor: str = Field(description="Who asked for it.")
    history: Literal["rewrite", "cut"] = Field(description="What becomes of the past.")
    keys: int = Field(description="How many keys it is about.", examples=[1])
    rows: int = Field(description="How many rows had them when it began.", examples=[1])
    blocked_by: list[str] = Field(description="Pins and tags that hold it up.")
    places: list[dict[str, Any]] = Field(description="Where the last scan found something.")
    problems: list[str] = Field(description="What the last scan could not look at.")


class ErasuresDocument(Document):
    """Erasures of this lake, as far as the token may see them."""

    erasures: list[ErasureDocument] = Field(description="The newest first, at most `limit` of them.")
    more: bool = Field(description="Whether there are more.")


class BegunErasureDocument(ErasureDocument):
    """An erasure that has begun: no read shows the rows any more."""

    salt: str = Field(description="Proves to who knows the key whom the receipt is about. Kept nowhere else.")
    cycle: str | None = Field(
        description="The cycle of maintenance that does the rest; null: one is running, or this node runs none, and "
        "the next one does."
    )


class ResumedErasureDocument(ErasureDocument):
    """An erasure that goes on."""

    cycle: str | None = Field(description="The cycle of maintenance that goes on with it; null: the next one does.")
