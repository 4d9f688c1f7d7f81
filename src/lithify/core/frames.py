"""Rows of a table in the forms that people reach for: the same for a table here and for one behind a service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lithify.core.optional import missing

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Frames(ABC):
    """What gives its rows as Arrow gives them to pandas and polars, too."""

    @abstractmethod
    def to_arrow(self, columns: Sequence[str] | None = None, where: str | None = None, as_of: Any = None) -> pa.Table:
        """Fresh rows."""

    def to_pandas(
        self, columns: Sequence[str] | None = None, where: str | None = None, as_of: Any = None
    ) -> pd.DataFrame:
        """Fresh rows as a pandas DataFrame."""
        rows = self.to_arrow(columns, where, as_of)
        try:
            return rows.to_pandas()
        except ModuleNotFoundError as error:
            raise missing("pandas") from error

    def to_polars(
        self, columns: Sequence[str] | None = None, where: str | None = None, as_of: Any = None
    ) -> pl.DataFrame:
        """Fresh rows as a polars DataFrame."""
        try:
            import polars
        except ModuleNotFoundError as error:
            raise missing("polars") from error
        frame = polars.from_arrow(self.to_arrow(columns, where, as_of))
        assert isinstance(frame, polars.DataFrame)
        return frame
