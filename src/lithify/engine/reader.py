"""The read path: snapshot → plan → engine.

Pending changes are resolved once per snapshot, in Arrow, and kept for the next query; change files are immutable,
so their rows are kept too. Change files that stand beside base as they are (a first load) are scanned like base
files.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.engine.base_part import BasePart
from lithify.engine.handles import Handles, forget_snapshots
from lithify.errors import Corruption, NotFound
from lithify.model.batch import keys_of
from lithify.model.merge import Change, Op, Overlay, lookup, resolve, settle
from lithify.model.plans import ReadPlan, Source, source_of
from lithify.model.pruning import solid_prefix, split_by_keys
from lithify.model.snapshot import DataFile, Snapshot
from lithify.store.parquet import completed, corrupt, read

SOLID_ROWS_MIN = 20_000
CHANGE_CACHE_BYTES_MAX = 256 * 2**20
PLANS_KEPT_MAX = 4

_readers: weakref.WeakValueDictionary[int, Reader] = weakref.WeakValueDictionary()


def let_go(table_id: str) -> None:
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
        # Not the lock of the logs: whoever reads files must not keep a writer waiting.
        self._lock = threading.RLock()
        _readers[id(self)] = self

    @property
    def table_id(self) -> str:
        return self._handles.incarnation

    def plan(self, snapshot: Snapshot) -> ReadPlan:
        return self._made(snapshot).plan

    def _made(self, snapshot: Snapshot) -> _Made:
        with self._lock:
            plans = self._plans
            if (kept := plans.get(snapshot.identity)) is not None:
                plans.move_to_end(snapshot.identity)
                return kept
            self._forget_folded(snapshot)
            made = self._make(snapshot)
            plans[snapshot.identity] = made
            while len(plans) > PLANS_KEPT_MAX:
                plans.popitem(last=False)
            return made

    def forget_plans(self) -> None:
        """Without the lock: a reader that is at work does not hold it up, and keeps what it has in its hands."""
        self._plans = OrderedDict()
        self._handles.forget_snapshot()

    def _make(self, snapshot: Snapshot) -> _Made:
        solid, rest = _solid(snapshot)
        base = self._base_part(snapshot)
        beside = [(file, self.change_source(file, snapshot)) for file in solid]
        standing = [*base.sources, *beside] if beside else base.sources
        if sum(file.rows for file in rest) > self._handles.runtime.settings.resolve_rows_max:
            changes = tuple(self.change_source(file, snapshot) for file in rest)
            return _Made(ReadPlan(snapshot, (), tuple(source for _, source in standing), None, changes), base, beside)
        overlay = self.overlay(snapshot, rest, standing)
        met = _touched(base, beside, overlay.hidden)
        paths = {source.path for source in met}
        clean = tuple(source for _, source in standing if source.path not in paths)
        return _Made(ReadPlan(snapshot, clean, tuple(met), overlay), base, beside)

    def overlay(
        self, snapshot: Snapshot, changes: Sequence[DataFile], standing: Sequence[tuple[DataFile, Source]]
    ) -> Overlay:
        """Latest per key over `changes`, contests against what is standing already decided."""
        schema = snapshot.schema
        with self._lock:
            resolved = resolve(schema, [self.change(file, snapshot) for file in changes])
        if resolved.contested is None:
            return resolved
        files, _ = split_by_keys([file for file, _ in standing], resolved.contested.select(list(schema.key)))
        paths = {file.path for file in files}
        sources = [source for file, source in standing if file.path in paths]
        assert schema.order_by
        losers = self._handles.runtime.serving.losers(sources, resolved.contested, schema.key, schema.order_by)
        return settle(schema, resolved, losers)

    def change(self, file: DataFile, snapshot: Snapshot) -> Change:
        path = self._handles.changes.log.path / file.path
        cached = self._changes.get(file.path)
        columns = snapshot.schema.select(file.columns) if file.op is Op.DELETE else snapshot.schema.columns
        if snapshot.schema.keyed and file.op is Op.DELETE:
            columns = snapshot.schema.select(snapshot.schema.key)
        if cached is None or cached.schema != columns:
            try:
                cached = read(path, columns)
            except NotFound as error:
                if any(live.path == file.path for live in self._handles.changes.files()):
                    raise missing_file(path, snapshot) from error
                raise NotFound(
                    f"table {snapshot.table} as of {snapshot.seq} can no longer be read: vacuum has removed {path}; "
                    "choose a newer seq"
                ) from error
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
        live = {file.path for file in snapshot.changes}
        for path in [path for path in self._changes if path not in live]:
            self._changes_bytes -= self._changes.pop(path).nbytes

    def base_sources(self, snapshot: Snapshot) -> tuple[tuple[DataFile, Source], ...]:
        return self._base_part(snapshot).sources

    def _base_part(self, snapshot: Snapshot) -> BasePart:
        part = self._base
        if part is None or not part.is_of(snapshot.base, snapshot.schema):
            part = self._base = BasePart(snapshot.base, str(self._handles.base_folder), snapshot.schema, part)
        return part

    def change_source(self, file: DataFile, snapshot: Snapshot) -> Source:
        return source_of(file, str(self._handles.changes.log.path), snapshot.schema)

    def get(self, snapshot: Snapshot, key: Any) -> dict[str, Any] | None:
        schema = snapshot.schema
        wanted = keys_of([key], schema)
        made = self._made(snapshot)
        plan = made.plan
        if plan.overlay is None:
            condition = " AND ".join(f'"{name}" = {_literal(wanted.column(name)[0])}' for name in schema.key)
            found = self._handles.runtime.serving.read(plan, where=condition)
            return found.to_pylist()[0] if found.num_rows else None
        overlay = plan.overlay
        if lookup(wanted, overlay.hidden, schema.key)[0] >= 0:
            return _row(overlay.rows, wanted)
        for source in _touched(made.base, made.beside, wanted):
            row = self._find(source, snapshot, wanted)
            if row is not None:
                return row
        return None

    def _find(self, source: Source, snapshot: Snapshot, wanted: pa.Table) -> dict[str, Any] | None:
        schema = snapshot.schema
        fixed = dict(source.constants)
        if any(name in fixed and fixed[name] != wanted.column(name)[0].as_py() for name in schema.key):
            return None
        inside = [name for name in schema.key if name not in fixed]
        filters = None
        for name in inside:
            condition = pc.field(name) == wanted.column(name)[0]
            filters = condition if filters is None else filters & condition
        present = set(_names_in(source.path, snapshot))
        columns = [name for name in schema.names if name in present and name not in fixed]
        try:
            table = pq.read_table(source.path, columns=columns, filters=filters, page_checksum_verification=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise corrupt(source.path, error) from error
        if not table.num_rows:
            return None
        row: dict[str, Any] = completed(table.slice(0, 1), schema.columns, fixed).to_pylist()[0]
        return row


class _Made(NamedTuple):
    """A plan, and what stands in it: base, and the change files that stand beside it."""

    plan: ReadPlan
    base: BasePart
    beside: list[tuple[DataFile, Source]]


def _touched(base: BasePart, beside: Sequence[tuple[DataFile, Source]], keys: pa.Table) -> list[Source]:
    paths = {file.path for file in split_by_keys([file for file, _ in beside], keys)[0]}
    return [source for _, source in base.touched(keys)] + [source for file, source in beside if file.path in paths]


def _solid(snapshot: Snapshot) -> tuple[list[DataFile], list[DataFile]]:
    """The files that stand beside base, and the rest. A look at the oldest commit often tells that there are none."""
    oldest = min((file.seq for file in snapshot.changes), default=0)
    if any(file.op is Op.DELETE or file.rows < SOLID_ROWS_MIN for file in snapshot.changes if file.seq == oldest):
        return [], list(snapshot.changes)
    return solid_prefix(snapshot.schema, snapshot.base, snapshot.changes, SOLID_ROWS_MIN)


def _names_in(path: str, snapshot: Snapshot) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except FileNotFoundError as error:
        raise missing_file(Path(path), snapshot) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise corrupt(path, error) from error


def _row(rows: pa.Table, wanted: pa.Table) -> dict[str, Any] | None:
    if not rows.num_rows:
        return None
    mask = None
    for name in wanted.column_names:
        equal = pc.equal(rows.column(name), wanted.column(name)[0])
        mask = equal if mask is None else pc.and_(mask, equal)
    place = pc.index(mask, True).as_py()
    return None if place < 0 else rows.slice(place, 1).to_pylist()[0]


def _literal(value: pa.Scalar) -> str:
    if pa.types.is_integer(value.type) or pa.types.is_boolean(value.type):
        return str(value.as_py())
    text = str(value.cast(pa.string()).as_py()) if not pa.types.is_binary(value.type) else value.as_py().hex()
    quoted = text.replace("'", "''")
    return (
        f"arrow_cast('{quoted}', '{_arrow_name(value.type)}')" if not pa.types.is_binary(value.type) else f"X'{quoted}'"
    )


def _arrow_name(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return 'Timestamp(Microsecond, Some("UTC"))' if kind.tz else "Timestamp(Microsecond, None)"
    if pa.types.is_decimal(kind):
        return f"Decimal128({kind.precision}, {kind.scale})"
    return "Date32" if pa.types.is_date(kind) else "Utf8"


def missing_file(path: Path, snapshot: Snapshot) -> Corruption:
    return Corruption(
        f"{path} is missing although the log of table {snapshot.table} names it: restore it from a copy, or read "
        "as of an older seq",
        path=str(path),
    )
