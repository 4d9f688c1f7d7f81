"""Documents about a table's state and upkeep, as they stand in requests and answers: what each field means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from lithify.core.results import (
    CompactReport,
    FoldPlan,
    FoldReport,
    HistoryEntry,
    PartitionStats,
    PlannedCompaction,
    Tag,
)
from lithify.http.documents.tables import AsOf, Text

HISTORY_MAX = 1_000


class Document(BaseModel):
    """An answer, made from a value with the same fields."""

    model_config = ConfigDict(from_attributes=True)


class Order(BaseModel):
    """A request's body. A field that nobody knows is refused: it is most likely misspelled."""

    model_config = ConfigDict(extra="forbid", strict=True)


# -- a table's state


class TagOrder(Document):
    """Which version gets the name."""

    as_of: AsOf | None = Field(None, description="A seq, a time in ISO 8601, or a tag; default: now.", examples=[42])


class TagsDocument(Document):
    """The named versions of a table."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    tags: list[Tag] = Field(description="By name.")


class UntaggedDocument(Document):
    """A name was taken away."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    tag: str = Field(description="The name.", examples=["month-end"])
    untagged: bool = Field(description="True.")


class HistoryDocument(Document):
    """What happened to a table, newest first."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    history: list[HistoryEntry] = Field(description="Newest first, at most `limit` of them.")


@dataclass(frozen=True)
class PartitionDocument(PartitionStats):
    """One partition of base."""

    time_min: Annotated[str | None, "Earliest value of the time column; null if unknown."]  # type: ignore[assignment]
    time_max: Annotated[str | None, "Latest value of the time column; null if unknown."]  # type: ignore[assignment]


class PartitionsDocument(Document):
    """The partitions of base. Pending changes have none yet."""

    table: str = Field(description="The table's name.", examples=["shop.orders"])
    partitions: list[PartitionDocument] = Field(description="In the order of their values, nulls last.")


# -- upkeep of one table


class FoldOrder(Order):
    """Fold now, or only say what that would do."""

    dry_run: bool = Field(default=False, description="Show what would be done, and do nothing.", examples=[True])


TierName = Annotated[Text, Field(min_length=1, max_length=64)]
Tiers = TierName | Annotated[list[TierName], Field(min_length=1, max_length=32)]


class CompactOrder(Order):
    """Compact now what is due, or only say what is."""

    dry_run: bool = Field(default=False, description="Show what would be done, and do nothing.", examples=[True])
    tier: Tiers | None = Field(
        default=None, description="Only this tier's work, or `pack`; or a list of them.", examples=["hourly"]
    )


class OptimizeOrder(Order):
    """Write base anew in z-order, or only say what would be written."""

    dry_run: bool = Field(default=False, description="Show what would be done, and do nothing.", examples=[True])
    by: list[Annotated[Text, Field(min_length=1, max_length=255)]] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Columns to order by; by default the key, then the time.",
        examples=[["customer", "placed"]],
    )


class VacuumOrder(Order):
    """Delete files that no retained version needs. Without `"dry_run": false`, only shows them."""

    dry_run: bool = Field(default=True, description="Show what would be deleted, and delete nothing.", examples=[True])
    retain_hours: float = Field(
        default=168,
        ge=1,
        le=876_000,
        allow_inf_nan=False,
        description="Versions of this many hours stay readable.",
        examples=[168],
    )


@dataclass(frozen=True)
class PlannedFold(FoldPlan):
    """What a fold would do now."""

    dry_run: Annotated[Literal[True], "Nothing was done."] = True


@dataclass(frozen=True)
class DoneFold(FoldReport):
    """What a fold did. Row counts are exact."""

    dry_run: Annotated[Literal[False], "It was done."] = False


class PlannedCompactionsDocument(Document):
    """What would be compacted, or ordered, now."""

    dry_run: Literal[True] = Field(default=True, description="Nothing was done.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    planned: list[PlannedCompaction] = Field(description="The jobs that would run; empty if nothing is due.")
    note: str | None = Field(
        default=None, description="Why the tier has nothing to do on this table, whatever its files."
    )


class CompactionsDocument(Document):
    """What was compacted, or ordered."""

    dry_run: Literal[False] = Field(default=False, description="It was done.")
    table: str = Field(description="The table's name.", examples=["shop.orders"])
    done: list[CompactReport] = Field(description="The jobs that ran; empty if nothing was due.")
    note: str | None = Field(
        default=None, description="Why the tier has nothing to do on this table, whatever its files."
    )
