"""One row of one large Parquet file, by its key.

DataFusion goes through row group statistics and the page index, and decodes only the pages that can
hold the row; one context is kept for all lookups, with the footers of the files it has seen. For a file of few rows,
decoding all of them takes less than planning a query. A file that is missing has no rows for DataFusion, so finding
none counts only where the file was there all the time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

import pyarrow as pa
from datafusion import SessionContext, col, lit

from lithify.core.names import quoted
from lithify.core.read_plan import Source
from lithify.files.local_files import use
from lithify.files.read_proof import Marks, Vanished
from lithify.sql.scan_files import must_doubt, scanning_config

# Others mean something in the address of a file: a pattern, an escape, a query.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9_./=-]*\.parquet")


class Lookup:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ctx: SessionContext | None = None

    @staticmethod
    def can_read(source: Source) -> bool:
        is_plain = use(source.path, source.size_bytes, _PLAIN_PATH.fullmatch) is not None
        return is_plain and not must_doubt([source])

    def rows(self, path: str, size_bytes: int, columns: pa.Schema, key: Mapping[str, pa.Scalar]) -> pa.Table:
        """The rows with these values, in DataFusion's spelling of the columns' types."""

        def rows(local: str) -> pa.Table:
            try:
                return self._rows(local, size_bytes, columns, key)
            except Vanished as error:
                if local == path:
                    raise
                raise FileNotFoundError(local) from error  # a copy, of which there can be another

        return use(path, size_bytes, rows)

    def _rows(self, path: str, size_bytes: int, columns: pa.Schema, key: Mapping[str, pa.Scalar]) -> pa.Table:
        marks = Marks()
        marks.add(path, size_bytes)
        frame = self._context().read_parquet(path, schema=pa.schema([f.with_nullable(True) for f in columns]))
        for name, value in key.items():
            frame = frame.filter(col(quoted(name)) == lit(value))
        found = frame.to_arrow_table()
        marks.check()
        return found

    def _context(self) -> SessionContext:
        with self._lock:
            if self._ctx is None:
                self._ctx = SessionContext(
                    scanning_config()
                    .with_target_partitions(1)
                    .set("datafusion.execution.parquet.pushdown_filters", "true")
                    # NaN does not count in them: a column of one number and NaN is taken for that number alone.
                    .set("datafusion.execution.collect_statistics", "false")
                    # The index has asked them already, with a read of 32 bytes instead of the whole filter.
                    .set("datafusion.execution.parquet.bloom_filter_on_read", "false")
                )
            return self._ctx
