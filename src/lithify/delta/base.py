"""The base log: a plain Delta table that any engine reads, holding everything up to its watermark.

`txn("lithify.folded", S)` is the watermark. A fold commits it together with its files, and only on the watermark it
planned on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePath

from lithify.core.schema import GENERATION, TableSchema
from lithify.core.snapshot import DataFile
from lithify.delta.actions import LogChange
from lithify.delta.constraints import stricter
from lithify.delta.log import DeltaLog
from lithify.errors import Conflict, InvalidRequest, NotFound
from lithify.files.storage import Storage

WATERMARK_TXN = "lithify.folded"
OWNER = "lithify.owner"
REFUSED_FEATURES = {"deletionVectors": "deletion vectors", "columnMapping": "column mapping"}


def refuse_features(log: DeltaLog) -> None:
    properties = log.properties
    used = {feature for feature in REFUSED_FEATURES if feature in log.features}
    if properties.get("delta.columnMapping.mode", "none") != "none":
        used.add("columnMapping")
    if properties.get("delta.enableDeletionVectors") == "true":
        used.add("deletionVectors")
    for feature in used:
        raise InvalidRequest(
            f"{log.path} uses {REFUSED_FEATURES[feature]}, which its data files alone do not tell: rewrite it without "
            "them first"
        )


def refuse_demands(log: DeltaLog) -> None:
    """A table that is to be adopted must not ask of writers what Lithify does not do."""
    for demand in log.demands():
        raise InvalidRequest(
            f"{log.path} has {demand}, which Lithify does not evaluate: drop it there if whoever writes rows keeps to "
            "it anyway, or copy the rows into a table of Lithify's own"
        )


class BaseLog:
    def __init__(self, log: DeltaLog, table: str) -> None:
        self.log, self.table = log, table
        self._begun: dict[str, tuple[int, bool]] = {}

    @classmethod
    def open(
        cls,
        path: PurePath,
        store: Storage,
        table: str,
        checkpoint_every: int,
        listed: Callable[[], object] = lambda: None,
    ) -> BaseLog:
        return cls(DeltaLog.open(path, store, checkpoint_every=checkpoint_every, listed=listed), table)

    @property
    def watermark(self) -> int:
        return self.log.txn(WATERMARK_TXN) or 0

    @property
    def generation(self) -> int:
        """Which change of the table's columns its files and columns are of."""
        return int(self.log.properties.get(GENERATION, "0"))

    def check_readable(self, schema: TableSchema) -> None:
        """Refuse what another writer did to an adopted base that its files alone do not tell, or that we would lose."""
        refuse_features(self.log)
        known = set(schema.base_columns.names)
        for extra in [name for name in self.log.columns().names if name not in known]:
            if self.log.properties.get(OWNER) and not self._is_empty(extra):
                raise Conflict(
                    f"the base of table {self.table} has a column {extra!r} that the table does not have: add it with "
                    "add_column, so that folds keep its values"
                )

    def check_foldable(self, schema: TableSchema) -> None:
        """Refuse to write rows into a base that has come to demand of them what nobody here looks at."""
        for demand in self._demanded(schema):
            raise Conflict(
                f"nothing is folded into the base of table {self.table}: another writer has given {self.log.path} "
                f"{demand}, which Lithify does not evaluate. Pending changes stay as they are and are read; drop it "
                "there to have them folded"
            )

    def check_writable(self, schema: TableSchema) -> None:
        """Refuse a write that no fold would take. Only what is known is asked, so a write costs no look at base: what
        came since the last read or fold of this process is found by the next one. What is refused is looked at anew.
        """
        if self._demanded(schema):
            self.log.refresh()
        for demand in self._demanded(schema):
            raise Conflict(
                f"nothing is written to table {self.table}: another writer has given its base {self.log.path} "
                f"{demand}, which Lithify does not evaluate, so that rows could break it, and no fold takes them. Drop "
                "it there, then write again"
            )

    def _demanded(self, schema: TableSchema) -> list[str]:
        if not self.log.properties.get(OWNER):
            return []
        strict = stricter(self.log.columns(), schema.columns)
        return self.log.demands() + [f"NOT NULL on column {name!r}" for name in strict]

    def _is_empty(self, column: str) -> bool:
        """Whether a column that only base has is one that `add_column` began with: until the table has it too, we write
        no value to it, and nobody else has added a file since.
        """
        seen, empty = self._begun.get(column, (-1, False))
        for version in range(self.log.version, max(seen + 1, self.log.versions().start) - 1, -1):
            record = self.log.commit_record(version)
            added = str(record.info.get("column")).partition(" ")[0]  # its type follows
            if record.info.get("operation") == "add column" and added == column:
                empty = True
                break
            if record.adds and not record.info:
                empty = False
                break
        self._begun[column] = self.log.version, empty
        return empty

    def files(self, schema: TableSchema) -> tuple[DataFile, ...]:
        told_by = (schema.expiry.column,) if schema.expiry is not None else ()
        times = filter(None, (schema.time, *told_by))
        return self.log.files([*schema.key, *times, *schema.partition_by, *schema.sort_columns[:1]])

    def with_watermark(self, change: LogChange) -> LogChange:
        """Every commit to base says up to where it holds everything, and in which columns."""
        generation = int((change.properties or {}).get(GENERATION, self.generation))
        said = {"watermark": change.txns.get(WATERMARK_TXN, self.watermark)}
        return replace(change, info={**change.info, **said, **({"generation": generation} if generation else {})})

    def version_up_to(self, seq: int, generation: int) -> int:
        """The newest version whose watermark is at most `seq`, in columns that are not newer than these."""
        versions = [v for v in self.log.versions() if v <= self.log.version]
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            if self._said_at(versions, middle, "watermark") <= seq and (
                self.generation <= generation or self._said_at(versions, middle, "generation") <= generation
            ):
                low = middle + 1
            else:
                high = middle
        if low == 0:
            raise NotFound(
                f"table {self.table} can no longer be read as of seq {seq}: its base has moved on; choose a newer seq"
            )
        return versions[low - 1]

    def folded_ms(self, seq: int) -> int | None:
        """When the write with this seq was folded; None where that is not known any more."""
        try:
            first = self.version_up_to(seq - 1, self.generation) + 1
            return int(self.log.commit_record(first).info.get("time_ms", 0))
        except NotFound:  # trimmed since
            return None

    def _said_at(self, versions: Sequence[int], position: int, what: str) -> int:
        while position >= 0:
            info = self.log.commit_record(versions[position]).info
            if isinstance(found := info.get(what), int):
                return found
            if what == "generation" and "watermark" in info:
                return 0  # from before any change
            position -= 1
        return 0
