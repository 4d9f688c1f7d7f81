"""The read path: snapshot → plan → engine.

Pending changes are resolved once per snapshot, in Arrow, and kept for the next query; change files are immutable,
so their rows are kept too. Change files that stand beside base as they are (a first load) are scanned like base
files. Which files and row groups a query has to read is asked of the table's indexes (`Coverage`).
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from lithify.cache.hot_rows import HotRows
from lithify.core.arrow_rows import lookup
from lithify.core.column_types import type_of
from lithify.core.ops import WHOLE, Change, Overlay
from lithify.core.predicates import Predicate, both
from lithify.core.read_plan import PlannedTable, ReadPlan, Source, source_of
from lithify.core.rows import keys_of
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot
from lithify.delta.changes import BASE_PATH
from lithify.errors import Corruption
from lithify.files.local_files import bring, bring_soon
from lithify.files.parquet import read
from lithify.index.key_ranges import solid_prefix, split_by_keys
from lithify.index.lookup import Coverage, Files, Flags, Selection
from lithify.index.table_index import SOLID_ROWS_MIN, TableIndex
from lithify.merge.late import remembered, remembering, without_late
from lithify.merge.partial import completed as completed_row
from lithify.merge.partial import line_columns
from lithify.merge.pending import can_stay_open, closed, extended, filled, keys_lacking, lacking, shown
from lithify.merge.winners import resolve, with_patches, without_losers
from lithify.read.base_part import BasePart
from lithify.read.history import incremental_up_to, originals
from lithify.read.kept_pending import KeptPending
from lithify.read.one_row import equals, row_in, row_with
from lithify.read.planned_table import SnapshotPlanner, pruned, usable
from lithify.tables.handles import Handles, forget_snapshots

CHANGE_CACHE_BYTES_MAX = 256 * 2**20
PLANS_CACHED_MAX = 4

_readers: weakref.WeakValueDictionary[int, Reader] = weakref.WeakValueDictionary()


def drop_cached(table_id: str) -> None:
    """Forget what readers of this process keep of a table for the next query only. A plan that is kept keeps its
    snapshot, and a snapshot that is held keeps its files from vacuum.
    """
    for reference in _readers.valuerefs():
        reader = reference()
        if reader is not None and reader.table_id == table_id:
            reader.forget_plans()
    forget_snapshots(table_id)


class Reader:
    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._plans: OrderedDict[tuple[str, int, int], _Made] = OrderedDict()
        self._changes: OrderedDict[str, pa.Table] = OrderedDict()
        self._changes_bytes = 0
        self._changes_version = -1
        self._base: BasePart | None = None
        self._pending = KeptPending()
        self._tombstones: tuple[tuple[str, ...], pa.Table] | None = None
        # Not the lock of the logs: whoever reads files must not keep a writer waiting.
        self._lock = threading.RLock()
        _readers[id(self)] = self

    @property
    def table_id(self) -> str:
        return self._handles.incarnation

    def planned(self, snapshot: Snapshot) -> PlannedTable:
        return SnapshotPlanner(
            snapshot,
            self._pruned,
            self._base_coverage,
            self._set_aside,
            self._hot_rows,
            self._want_hot,
            self._fetch,
            self._handles.data_folders,
        )

    @property
    def handles(self) -> Handles:
        return self._handles

    def _hot_rows(self, snapshot: Snapshot, columns: Sequence[str] | None) -> HotRows | None:
        return self._handles.runtime.hot.rows(self, snapshot, columns)

    def _want_hot(self, snapshot: Snapshot, columns: Sequence[str] | None) -> None:
        self._handles.runtime.hot.want(self, snapshot, columns)

    def _fetch(self, snapshot: Snapshot) -> None:
        """Of a base that was read before, whoever reads it brings what is missing: that is looked for once."""
        known = self._base is not None and self._base.is_of(snapshot.base, snapshot.schema)
        if self._handles.runtime.store.remote and not known:
            changes, base = self._handles.changes.log.path, self._handles.base_folder
            files = [(changes / file.path, file.size_bytes) for file in snapshot.changes]
            bring_soon([*files, *((base / file.path, file.size_bytes) for file in snapshot.base)])

    def plan(self, snapshot: Snapshot) -> ReadPlan:
        """Of everything, also of rows that have expired; those hides who asks `planned` for a plan."""
        return self._told(self._made(snapshot), None)

    def plan_for(self, snapshot: Snapshot, keys: Sequence[pa.Table], columns: Sequence[str] | None = None) -> ReadPlan:
        """As `plan`, of no other files than those that can hold a row with one of the keys. `columns`: those that it
        has to tell besides the keys' (None: all).
        """
        made = self._made(snapshot)
        by = [name for wanted in keys for name in wanted.column_names]
        plan = self._told(made, None if columns is None else [*columns, *by])
        if any(wanted.num_rows and not wanted.num_columns for wanted in keys):
            return plan
        found = [source for wanted in keys for _, source in self._touched(made.base, made.beside, snapshot, wanted)]
        left = {source.path: source for source in found}
        if len(keys) == 1 and left:
            left = self._narrowed(left, made.base, keys[0])
        clean, touched = (
            tuple(left[source.path] for source in part if source.path in left) for part in (plan.clean, plan.touched)
        )
        return replace(plan, clean=clean, touched=touched)

    def knows_keys(self, schema: TableSchema) -> bool:
        """Whether the index alone may tell that base has a row with a key. Not of an adopted base: others may have
        written a key twice into that.
        """
        counted = len(schema.key) == 1 and type_of(schema.columns.field(schema.key[0]).type).is_counted
        return counted and BASE_PATH not in schema.settings

    def surely_there(self, snapshot: Snapshot, keys: pa.Table) -> Flags:
        """Per key of a table of that kind: whether it tells that."""
        made = self._made(snapshot)
        none: Flags = np.zeros(keys.num_rows, np.bool_)
        if keys.column(0).null_count or made.plan.overlay is None:
            return none
        index, base = self._handles.base_index, made.base
        try:
            return self._coverage(index, base, snapshot).holds(keys.column(0), keys.column_names[0])
        except Corruption as error:
            index.set_aside(error)
            base.coverage = None
            return none

    def _pruned(
        self, snapshot: Snapshot, predicate: Predicate | None, columns: Sequence[str] | None = None
    ) -> ReadPlan:
        made, cutoff = self._made(snapshot), snapshot.cutoff
        if cutoff is None:
            plan = self._told(made, columns)
            return pruned(plan, self._selections(made, usable(plan, predicate)))
        plan = self._told(made, None if columns is None else (*columns, cutoff.column))
        unexpired = cutoff.shown if predicate is None else both((predicate, cutoff.shown))
        return replace(pruned(plan, self._selections(made, usable(plan, unexpired))), snapshot=snapshot)

    def _selections(self, made: _Made, predicate: Predicate | None) -> list[Selection]:
        base, beside, snapshot = made.base, made.beside, made.plan.snapshot
        found = [self._select(self._handles.base_index, base, snapshot, predicate)]
        if beside.sources:
            found.append(self._select(self._handles.changes_index, beside, snapshot, predicate))
        return found

    def _select(
        self, index: TableIndex, part: BasePart | _Beside, snapshot: Snapshot, predicate: Predicate | None
    ) -> Selection:
        try:
            return self._coverage(index, part, snapshot).select(predicate)
        except Corruption as error:
            index.set_aside(error)
            part.coverage = None
            return Coverage(part.arrays, snapshot.schema).select(predicate)

    def _coverage(self, index: TableIndex, part: BasePart | _Beside, snapshot: Snapshot) -> Coverage:
        whole = index is self._handles.base_index
        version = snapshot.base_version if whole else snapshot.changes_version
        part.coverage = found = index.coverage(part.arrays, snapshot.schema, version, part.coverage, whole=whole)
        return found

    def _set_aside(self, snapshot: Snapshot, error: Corruption) -> None:
        self._handles.base_index.set_aside(error)
        self._base_part(snapshot).coverage = None

    def _base_coverage(self, snapshot: Snapshot) -> Coverage:
        return self._coverage(self._handles.base_index, self._base_part(snapshot), snapshot)

    def _made(self, snapshot: Snapshot) -> _Made:
        with self._lock:
            plans = self._plans
            if (cached := plans.get(snapshot.identity)) is not None:
                plans.move_to_end(snapshot.identity)
                return cached
            self._forget_folded(snapshot)
            made = self._make(snapshot.unhidden)
            plans[snapshot.identity] = made
            while len(plans) > PLANS_CACHED_MAX:
                plans.popitem(last=False)
            return made

    def keeps(self, snapshot: Snapshot) -> bool:
        """Whether its plan is there already, with the pending changes resolved."""
        return snapshot.identity in self._plans

    def forget_plans(self) -> None:
        """Without the lock: a reader that is at work does not hold it up, and keeps what it has in its hands."""
        self._plans = OrderedDict()
        self._handles.forget_snapshot()

    def _make(self, snapshot: Snapshot) -> _Made:
        solid, rest = _solid(snapshot)
        base = self._base_part(snapshot)
        beside = _Beside(tuple((file, self.change_source(file, snapshot)) for file in solid))
        standing = [*base.sources, *beside.sources] if beside.sources else base.sources
        if sum(file.rows for file in rest) > self._handles.runtime.settings.resolve_rows_max:
            changes = tuple(self.change_source(file, snapshot) for file in rest)
            touched, remembered = tuple(source for _, source in standing), self.remembered(snapshot)
            return _Made(ReadPlan(snapshot, (), touched, None, changes, remembered=remembered), base, beside)
        with self._looking_at_base(base, snapshot):
            overlay = self._resolved(snapshot, rest, standing)
        met = [source for _, source in self._touched(base, beside, snapshot, overlay.hidden)]
        paths = {source.path for source in met}
        clean = tuple(source for _, source in standing if source.path not in paths)
        opened = None if overlay.patches is None else overlay
        return _Made(ReadPlan(snapshot, clean, tuple(met), overlay), base, beside, opened)

    @contextlib.contextmanager
    def _looking_at_base(self, base: BasePart, snapshot: Snapshot) -> Iterator[None]:
        """Meanwhile the index is asked for base for the first time, where that takes requests for footers."""
        if not self._handles.runtime.store.remote or base.coverage is not None or not base.sources:
            yield
            return
        with ThreadPoolExecutor(1) as beside:
            # What it fails at is told to whoever needs it.
            beside.submit(self._coverage, self._handles.base_index, base, snapshot)
            yield

    def overlay(
        self, snapshot: Snapshot, changes: Sequence[DataFile], standing: Sequence[tuple[DataFile, Source]]
    ) -> Overlay:
        """Latest per key over `changes`, contests against what is standing already decided."""
        return self._filled(snapshot.schema, self._resolved(snapshot, changes, standing), standing, None)

    def _resolved(
        self, snapshot: Snapshot, changes: Sequence[DataFile], standing: Sequence[tuple[DataFile, Source]]
    ) -> Overlay:
        """The same, with lines open that give some columns alone where that is possible (`merge/pending.py`)."""
        schema, key_queries = snapshot.schema, self._handles.runtime.serving.key_queries
        with self._lock:
            known = None
            if not self._pending.empty:
                known = self._pending.before(_base_of(snapshot, standing), _pending(snapshot, standing), changes)
            newer = changes if known is None else [file for file in changes if file.seq > known.seq]
            tombstones = None
            if newer and (snapshot.remembered or (known is not None and schema.order_by)):
                tombstones = self.remembered(snapshot, 0 if known is None else known.seq)
            found = without_late(schema, self.changes(newer, snapshot), tombstones)
            resolved = resolve(schema, found) if known is None else extended(schema, known.overlay, found)
        if resolved.contested is not None:
            sources = _holding_sources(standing, resolved.contested.select(list(schema.key)))
            losers = key_queries.losers(sources, resolved.contested, schema.key, schema.order_columns)
            resolved = without_losers(schema, resolved, losers)
        partial = resolved.patches is not None or known is not None
        if resolved.patches is not None and not can_stay_open(schema):
            keys = resolved.patches.select(list(schema.key)).cast(schema.select(schema.key))
            keys = keys.group_by(keys.column_names).aggregate([]).cast(keys.schema)
            met = key_queries.rows(_holding_sources(standing, keys), keys, schema.columns)
            resolved = with_patches(schema, resolved, met)
        if partial and changes:
            resolved = closed(schema, resolved)
            self._pending.keep(_base_of(snapshot, standing), _pending(snapshot, standing), changes, resolved)
        else:
            self._pending.forget()
        return resolved

    def _filled(
        self,
        schema: TableSchema,
        overlay: Overlay,
        standing: Sequence[tuple[DataFile, Source]],
        columns: Sequence[str] | None,
    ) -> Overlay:
        """Its open lines give these columns too (None: all of them, so that none stays open)."""
        wanted = () if overlay.patches is None else lacking(schema, overlay.patches, columns)
        if not wanted:
            return overlay
        assert overlay.patches is not None
        keys = keys_lacking(schema, overlay.patches, wanted)
        sources, inside = _holding_sources(standing, keys), schema.select([*schema.key, *wanted])
        met = self._handles.runtime.serving.key_queries.rows(sources, keys, inside)
        more = closed(schema, replace(overlay, patches=filled(schema, overlay.patches, wanted, met)))
        self._pending.replace(overlay, more)
        return more

    def _told(self, made: _Made, columns: Sequence[str] | None) -> ReadPlan:
        """A plan that tells these columns at least (None: all)."""
        with self._lock:
            told = made.plan.overlay is not made.opened
            if told and columns is not None and set(columns) <= set(made.plan.columns):
                return made.plan
            if made.opened is not None:
                schema = made.plan.schema
                overlay = self._filled(schema, made.opened, made.standing, columns)
                if overlay is not made.opened or not told:
                    made.plan = replace(made.plan, overlay=shown(schema, overlay))
                    made.opened = overlay if overlay.patches is not None else None
            return made.plan

    def changes(self, files: Sequence[DataFile], snapshot: Snapshot) -> list[Change]:
        """The rows of change files, those that lie far away fetched together."""
        with self._lock:
            folder = self._handles.changes.log.path
            bring((folder / file.path, file.size_bytes) for file in files if file.path not in self._changes)
            return [self._change(file, snapshot) for file in files]

    def change(self, file: DataFile, snapshot: Snapshot) -> Change:
        with self._lock:
            return self._change(file, snapshot)

    def remembered(self, snapshot: Snapshot, seq_max: int = 0) -> pa.Table | None:
        """Keys and order values of deletes that keep late events out; None where there are none. `seq_max`: also those
        of pending changes up to there.
        """
        pending = [file for file in snapshot.changes if file.seq <= seq_max] if snapshot.schema.order_by else []
        files = remembering([*snapshot.remembered, *pending])
        if not files:
            return None
        with self._lock:
            paths = tuple(file.path for file in files)
            if self._tombstones is None or self._tombstones[0] != paths:
                found = remembered(snapshot.schema, self.changes(files, snapshot))
                self._tombstones = paths, found
            return self._tombstones[1]

    def written_after(self, seq: int, rows_max: int | None) -> pa.Table | None:
        """The rows of the writes after one, also of those that are folded; None if there are more than that."""
        return incremental_up_to(self.handles, seq, rows_max)

    def forgets_after(self, seq: int) -> bool:
        """Whether deletes with an order value were forgotten between two writes after one."""
        return bool(originals(self.handles, seq).forgetting)

    def erased_after(self, seq: int) -> bool:
        """Whether rows were erased by a delete after one write that is not told any more."""
        return bool(originals(self.handles, seq).erased)

    def _change(self, file: DataFile, snapshot: Snapshot) -> Change:
        path = self._handles.changes.log.path / file.path
        cached = self._changes.get(file.path)
        columns = line_columns(snapshot.schema, file.op, file.columns)
        if cached is None or cached.schema != columns:
            cached = read(path, columns, size_bytes=file.size_bytes)
            self._keep(file.path, cached)
        else:
            self._changes.move_to_end(file.path)
        return Change(file.seq, file.op, cached)

    def _keep(self, path: str, rows: pa.Table) -> None:
        self._changes_bytes += rows.nbytes - (self._changes[path].nbytes if path in self._changes else 0)
        self._changes[path] = rows
        while self._changes_bytes > CHANGE_CACHE_BYTES_MAX and len(self._changes) > 1:
            self._changes_bytes -= self._changes.popitem(last=False)[1].nbytes

    def _forget_folded(self, snapshot: Snapshot) -> None:
        """Rows of change files that are gone from the newest snapshot seen. An older one does not count."""
        if snapshot.changes_version < self._changes_version:
            return
        self._changes_version = snapshot.changes_version
        live = {file.path for file in (*snapshot.remembered, *snapshot.changes)}
        for path in [path for path in self._changes if path not in live]:
            self._changes_bytes -= self._changes.pop(path).nbytes

    def touched(self, snapshot: Snapshot, keys: pa.Table) -> list[DataFile]:
        """Files of base that can hold one of the keys."""
        return [file for file, _ in self._touched(self._base_part(snapshot), _Beside(()), snapshot, keys)]

    def _touched(
        self, base: BasePart, beside: _Beside, snapshot: Snapshot, keys: pa.Table
    ) -> list[tuple[DataFile, Source]]:
        if not keys.num_rows:
            return []
        holding = self._holding(self._handles.base_index, base, snapshot, keys)
        found = base.touched(keys) if holding is None else _chosen(base.sources, holding)
        if beside.sources:
            paths = {file.path for file in split_by_keys([file for file, _ in beside.sources], keys)[0]}
            found += [entry for entry in beside.sources if entry[0].path in paths]
        return found

    def _holding(self, index: TableIndex, part: BasePart, snapshot: Snapshot, keys: pa.Table) -> Flags | None:
        """Per file, by the index; None where only the log can tell."""
        if not part.sources:
            return None
        try:
            coverage = self._coverage(index, part, snapshot)
            if len(coverage.unknown) == len(part.sources) or not coverage.tells(keys.column_names):
                return None
            holding = coverage.may_hold(keys)
        except Corruption as error:
            index.set_aside(error)
            part.coverage = None
            return None
        if coverage.unknown:
            unknown = [part.sources[number][0] for number in coverage.unknown]
            paths = {file.path for file in split_by_keys(unknown, keys)[0]}
            holding[[number for number in coverage.unknown if part.sources[number][0].path not in paths]] = False
        return holding

    def _narrowed(self, found: dict[str, Source], part: BasePart, keys: pa.Table) -> dict[str, Source]:
        """Files, by path, with the row groups that can hold one of the keys, as far as the index tells of them."""
        if (coverage := part.coverage) is None:
            return found
        try:
            holding = coverage.holding(keys)
        except Corruption as error:
            self._handles.base_index.set_aside(error)
            part.coverage = None
            return found
        unknown = {part.sources[number][1].path for number in coverage.unknown}
        # Files beside base are told by their seq.
        left = {path for path, source in found.items() if path in holding or source.seq or path in unknown}
        return {path: holding.get(path, source) for path, source in found.items() if path in left}

    def base_sources(self, snapshot: Snapshot) -> tuple[tuple[DataFile, Source], ...]:
        return self._base_part(snapshot).sources

    def _base_part(self, snapshot: Snapshot) -> BasePart:
        part = self._base
        if part is None or not part.is_of(snapshot.base, snapshot.schema):
            part = self._base = BasePart(snapshot.base, str(self._handles.base_folder), snapshot.schema, part)
        return part

    def change_source(self, file: DataFile, snapshot: Snapshot) -> Source:
        return source_of(file, str(self._handles.changes.log.path), snapshot.schema)

    def get(self, snapshot: Snapshot, key: Any) -> pa.Table | None:
        """The row with this key, all columns."""
        found = self.row(snapshot, keys_of([key], snapshot.schema))
        if found is not None and (cutoff := snapshot.cutoff) is not None:
            found = cutoff.standing(found)
        return found.select(snapshot.schema.names) if found is not None and found.num_rows else None

    def row(self, snapshot: Snapshot, wanted: pa.Table) -> pa.Table | None:
        """The row with this key, a table of one line, whether it has expired or not."""
        schema = snapshot.schema
        if (hot := self._handles.runtime.hot.rows(self, snapshot, None)) is not None:
            return hot.row(wanted, schema.key)
        made, line = self._made(snapshot), None
        with self._lock:
            overlay = made.opened or made.plan.overlay
        same = both(equals(name, wanted.column(name)[0]) for name in schema.key)
        if overlay is None:
            values = {name: wanted.column(name)[0] for name in schema.key}
            condition = " AND ".join(f'"{name}" = {type_of(v.type).literal(v)}' for name, v in values.items())
            return self._handles.runtime.serving.read(self._pruned(snapshot, same), where=condition).slice(0, 1)
        if lookup(wanted, overlay.hidden, schema.key)[0] >= 0:
            line = None if overlay.patches is None else row_with(overlay.patches, wanted)
            if line is None:
                return row_with(overlay.rows, wanted)
        found = self._standing(snapshot, made, wanted, same)
        if line is None:
            return found
        return completed_row(schema, line, schema.columns.empty_table() if found is None else found)

    def _standing(self, snapshot: Snapshot, made: _Made, wanted: pa.Table, same: Predicate) -> pa.Table | None:
        """The row with this key in base, or in what stands beside it."""
        footers = self._handles.runtime.serving.footers
        for selection in self._selections(made, same):
            likely = made.likely(wanted) if selection.report.files_unknown else None
            for source in selection.sources:
                if likely is not None and source.path not in likely:
                    continue
                if (row := row_in(source, snapshot, wanted, footers)) is not None:
                    return row
        return None


@dataclass
class _Beside:
    """Change files that stand beside base, and what the index of changes says of them, once somebody has asked."""

    sources: tuple[tuple[DataFile, Source], ...]
    coverage: Coverage | None = None

    @cached_property
    def arrays(self) -> Files:
        return Files(self.sources)


@dataclass
class _Made:
    """A plan, and what stands in it. `opened`: the overlay, with lines whose other columns nobody has asked for yet."""

    plan: ReadPlan
    base: BasePart
    beside: _Beside
    opened: Overlay | None = None

    @property
    def standing(self) -> tuple[tuple[DataFile, Source], ...]:
        return (*self.base.sources, *self.beside.sources)

    def likely(self, keys: pa.Table) -> set[str]:
        """Paths of the files that can hold one of the keys, by the log."""
        entries = [*self.base.touched(keys), *self.beside.sources]
        return {entry.path for _, entry in entries}


def _pending(snapshot: Snapshot, standing: Sequence[tuple[DataFile, Source]]) -> list[DataFile]:
    """Changes that do not stand beside base as they are."""
    beside = {file.path for file, _ in standing if file.seq}
    return [file for file in snapshot.changes if file.path not in beside]


def _base_of(snapshot: Snapshot, standing: Sequence[tuple[DataFile, Source]]) -> Hashable:
    """The same for the same rows of base and of what stands beside it, in the same columns."""
    beside = tuple(file.path for file, _ in standing if file.seq)
    return snapshot.base_version, beside, snapshot.schema.generation, tuple(snapshot.schema.columns)


def _holding_sources(standing: Sequence[tuple[DataFile, Source]], keys: pa.Table) -> list[Source]:
    """Of the files that can hold one of the keys, by the log."""
    paths = {file.path for file in split_by_keys([file for file, _ in standing], keys)[0]}
    return [source for file, source in standing if file.path in paths]


def _chosen(entries: Sequence[tuple[DataFile, Source]], chosen: Flags) -> list[tuple[DataFile, Source]]:
    return [entries[number] for number in np.flatnonzero(chosen).tolist()]


def _solid(snapshot: Snapshot) -> tuple[list[DataFile], list[DataFile]]:
    """The files that stand beside base, and the rest. A look at the oldest commit often tells that there are none."""
    oldest = min((file.seq for file in snapshot.changes), default=0)
    first = (file for file in snapshot.changes if file.seq == oldest)
    if any(file.op not in WHOLE or file.rows < SOLID_ROWS_MIN for file in first):
        return [], list(snapshot.changes)
    # What a remembered delete may keep out has to be looked at line by line.
    standing = (*snapshot.base, *snapshot.remembered) if snapshot.remembered else snapshot.base
    return solid_prefix(snapshot.schema, standing, snapshot.changes, SOLID_ROWS_MIN)
