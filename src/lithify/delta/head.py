"""A version of a log in memory, and how the commits after it move it on.

deltalake opens a log, from a checkpoint and the commits after it. From there on each further commit is read here, or is
known because it was just written, and moves what is kept: the version, the live files, the transactions. That costs
the same however long the log is; deltalake would list it and read it again.

Only what files and transactions need is understood: add, remove, txn. Whatever else a commit holds (other columns or
properties, another protocol, actions and values that are not known here) is `Unfamiliar`: deltalake opens the log
again then, and judges it as it does any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from deltalake import DeltaTable

from lithify.delta.actions import CommitRecord
from lithify.delta.constraints import demands
from lithify.delta.live_files import Check, LiveFiles
from lithify.delta.own_commits import seq_after
from lithify.delta.rebuild import Rebuilt, Txns
from lithify.delta.stated_values import Unfamiliar

_FAMILIAR = frozenset({"commitInfo", "add", "remove", "txn"})
# What deltalake commits to as it does to a table without them: nothing follows from them for adding and removing files.
_PLAIN_FEATURES = frozenset(
    {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "timestampNtz",
        "variantType",
    }
)
_PLAIN_WRITER_MAX, _FEATURES_WRITER = 4, 7
TXNS_KEPT_MAX = 1_000


@dataclass(frozen=True)
class Definition:
    """What a log says of its table besides files and transactions."""

    id: str
    properties: dict[str, str]
    partition_columns: tuple[str, ...]
    features: frozenset[str]
    writer_version: int
    schema_json: str
    columns: pa.Schema

    @classmethod
    def of(cls, table: DeltaTable) -> Definition:
        metadata, protocol, schema = table.metadata(), table.protocol(), table.schema()
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        return cls(
            str(metadata.id),
            dict(metadata.configuration),
            tuple(metadata.partition_columns),
            frozenset(features),
            protocol.min_writer_version,
            schema.to_json(),
            pa.schema(schema.to_arrow()),
        )

    @cached_property
    def demands(self) -> list[str]:
        return demands(self.properties, self.schema_json)

    @property
    def is_plain(self) -> bool:
        """Whether a commit of files needs no more than their actions."""
        known = self.writer_version <= _PLAIN_WRITER_MAX or self.writer_version == _FEATURES_WRITER
        return known and self.features <= _PLAIN_FEATURES


class Tail:
    """Used by one thread at a time. `table` is at `opened`, which is never newer than `version`."""

    def __init__(self, table: DeltaTable, txns: Txns | None = None) -> None:
        self.table = table
        self.definition = Definition.of(table)
        self.opened = self.version = int(table.version())
        self._since: list[CommitRecord] = []
        self._live: LiveFiles | None = None
        # As of `version`: those that were set since `opened`, and since `all_txns` were read; of others what was asked.
        self.txns: dict[str, int | None] = {}
        self.all_txns = txns
        # The newest seq of its commits, if one of those that were read gives one out.
        self.seq: int | None = None
        # When `opened` was committed, if that is known.
        self.opened_ms: int | None = None

    @classmethod
    def of(cls, rebuilt: Rebuilt) -> Tail:
        tail, last = cls(rebuilt.table, rebuilt.txns), rebuilt.last
        tail.seq = rebuilt.seq
        if last is not None and last.version == tail.opened:
            tail.opened_ms = int(last.info.get("time_ms", 0))
        return tail

    @property
    def commits_since(self) -> int:
        return len(self._since)

    def advance(self, commit: CommitRecord) -> None:
        """To the next version. Whatever it raises, Unfamiliar and NotWhole above all, leaves it where it was."""
        if not commit.kinds or not commit.kinds <= _FAMILIAR or commit.version != self.version + 1:
            raise Unfamiliar(f"version {commit.version} has {', '.join(sorted(commit.kinds)) or 'nothing'}")
        if not all(type(version) is int for version in commit.txns.values()):
            raise Unfamiliar(f"version {commit.version} has transactions without a number")
        seq = seq_after(commit.version, commit.txns, commit.info, self.seq)
        if self._live is not None:
            self._live.advance(commit)
        self.seq = seq
        self._since.append(commit)
        self.txns.update(commit.txns)
        self.version = commit.version

    def rebase(self, table: DeltaTable) -> None:
        """Have a newer version of the same log to ask, up to this one: what lies before it need not be kept."""
        self.table, self.opened, self.opened_ms = table, int(table.version()), None
        self._since = [commit for commit in self._since if commit.version > self.opened]
        if len(self.txns) > TXNS_KEPT_MAX:
            self.txns = {name: version for commit in self._since for name, version in commit.txns.items()}
            self.all_txns = None

    def files(self, bounds_of: Sequence[str], known: LiveFiles | None, check: Check) -> LiveFiles:
        """Those of `version`, with the bounds of these columns. `known`: of any version of the same log."""
        live = self._live
        if live is None or not set(bounds_of) <= set(live.bounds_of):
            said = self.definition
            actions = pa.table(self.table.get_add_actions(flatten=True))
            live = LiveFiles.of(
                self.opened, said.columns, said.partition_columns, actions, bounds_of, live or known, check
            )
            for commit in self._since:
                live.advance(commit)
            self._live = live
        return live
