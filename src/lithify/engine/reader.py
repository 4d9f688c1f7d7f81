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
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.engine.handles import Handles
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


class Reader:
    def __init__(self, handles: Handles) -> None:
        self._handles = handles
        self._plans: OrderedDict[tuple[str, int, int], ReadPlan] = OrderedDict()
        self._changes: OrderedDict[str, pa.Table] = OrderedDict()
        self._changes_bytes = 0
        # Not the lock of the logs: whoever reads files must not keep a writer waiting.
        self._lock = threading.RLock()
        _readers[id(self)] = self

    @property
    def table_id(self) -> str:
        return self._handles.incarnation

    def plan(self, snapshot: Snapshot) -> ReadPlan:
        with self._lock:
            plans = self._plans
            if (kept := plans.get(snapshot.identity)) is not None:
                plans.move_to_end(snapshot.identity)
                return kept
            plan = self._make(snapshot)
            plans[snapshot.identity] = plan
            while len(plans) > PLANS_KEPT_MAX:
                plans.popitem(last=False)
            return plan

    def forget_plans(self) -> None:
        """Without the lock: a reader that is at work does not hold it up, and keeps what it has in its hands."""
        self._plans = OrderedDict()
        self._handles.forget_snapshot()

    def _make(self, snapshot: Snapshot) -> ReadPlan:
        schema = snapshot.schema
        solid, rest = solid_prefix(schema, snapshot.base, snapshot.changes, SOLID_ROWS_MIN)
        standing = [
            *self.base_sources(snapshot),
            *((file, self.change_source(file, snapshot)) for file in solid),
        ]
        if sum(file.rows for file in rest) > self._handles.runtime.settings.resolve_rows_max:
            changes = tuple(self.change_source(file, snapshot) for file in rest)
            return ReadPlan(snapshot, (), tuple(source for _, source in standing), None, changes)
        overlay = self.overlay(snapshot, rest, standing)
        touched_files, _ = split_by_keys([file for file, _ in standing], overlay.hidden)
        touched_paths = {file.path for file in touched_files}
        touched = tuple(source for file, source in standing if file.path in touched_paths)
        clean = tuple(source for file, source in standing if file.path not in touched_paths)
        return ReadPlan(snapshot, clean, touched, overlay)

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

    def base_sources(self, snapshot: Snapshot) -> list[tuple[DataFile, Source]]:
        folder = str(self._handles.base_folder)
        return [(file, source_of(file, folder, snapshot.schema)) for file in snapshot.base]

    def change_source(self, file: DataFile, snapshot: Snapshot) -> Source:
        return source_of(file, str(self._handles.changes.log.path), snapshot.schema)

    def get(self, snapshot: Snapshot, key: Any) -> dict[str, Any] | None:
        schema = snapshot.schema
        wanted = keys_of([key], schema)
        plan = self.plan(snapshot)
        if plan.overlay is None:
            condition = " AND ".join(f'"{name}" = {_literal(wanted.column(name)[0])}' for name in schema.key)
            found = self._handles.runtime.serving.read(plan, where=condition)
            return found.to_pylist()[0] if found.num_rows else None
        overlay = plan.overlay
        if lookup(wanted, overlay.hidden, schema.key)[0] >= 0:
            return _row(overlay.rows, wanted)
        files = [file for file, _ in self.base_sources(snapshot)] + list(snapshot.changes)
        candidates, _ = split_by_keys(files, wanted)
        names = {file.path for file in candidates}
        for source in (*plan.clean, *plan.touched):
            if any(source.path.endswith(f"/{name}") for name in names):
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
