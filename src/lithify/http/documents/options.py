"""Documents about a table's options, and about columns that change."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from lithify.core.fields import Bytes, Count
from lithify.http.documents.tables import AboutTable, ColumnDocument, Document, Order, Scalar, Text


class OptionDocument(Document):
    """An option of a table."""

    name: str = Field(description="Its name.", examples=["fold_age_s_max"])
    help: str = Field(description="What it does.")
    allowed: str = Field(description="Which values it takes.", examples=["a whole number from 1 to 100,000"])
    value: Any = Field(description="What holds for this table now.", examples=[3600])
    own: bool = Field(description="Whether the table says so itself; otherwise it is the default.")
    default: Any = Field(description="What would hold otherwise: the lake's setting of this name, or the default.")


class OptionsDocument(AboutTable):
    """The options of a table."""

    options: list[OptionDocument] = Field(description="All that there are.")
    dry_run: bool = Field(description="Whether this only shows what would be: nothing was set.")
    changed: list[str] = Field(description="Options whose value was another one before.")


class OptionsOrder(Order):
    """Options to be set."""

    options: dict[Text, Any] = Field(
        description="New values by name; null goes back to the default. Those that are not named stay.", min_length=1
    )
    dry_run: bool = Field(False, description="Only show what would be.")


class ColumnOrder(Order):
    """One change of a table's columns."""

    change: Literal["add", "rename", "drop", "widen", "relax", "require", "move", "default"] = Field(
        description="relax: it may be null. require: it may not. move: behind `to`, or first. default: what rows get "
        "that are written without it; null: nothing."
    )
    column: Text = Field(description="The column, or the path of a field in one.", min_length=1, max_length=1_000)
    to: Text | None = Field(
        None, description="rename: its new name. move: the column that it comes behind; null: first.", max_length=255
    )
    type: Text | None = Field(
        None, description="add, widen: its type, as for POST /v1/tables.", max_length=10_000, examples=["int64"]
    )
    default: Scalar = Field(None, description="add, default: as JSON spells it.")
    dry_run: bool = Field(False, description="Only show what would be.")


class ColumnsDocument(AboutTable):
    """The columns of a table after a change."""

    columns: list[ColumnDocument] = Field(description="In their order.")
    seq: int = Field(description="From which seq on they are so; of a dry run, the newest one.")
    dry_run: bool = Field(description="Whether this only shows what would be: nothing was changed.")
    rewritten_files: Count = Field(description="Files of base that are written anew for it.")
    rewritten_bytes: Bytes = Field(description="Their bytes.")
