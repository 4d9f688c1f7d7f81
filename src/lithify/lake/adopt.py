"""Taking an existing table as a base, without copying its data.

A Delta table becomes the base where it is: everybody who reads it there sees each fold. A folder of Parquet files
is linked into a new base and stays untouched. Tables that use deletion vectors or column mapping are refused: their
files alone do not say what the rows are.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pyarrow as pa

from lithify.core.disk_files import ADOPTED
from lithify.core.names import TableName
from lithify.core.partitioning import partition_strings
from lithify.core.read_plan import Source
from lithify.core.schema import TableSchema, define
from lithify.core.wording import plural
from lithify.delta.actions import LogChange, check_removable
from lithify.delta.base import OWNER, BaseLog, refuse_demands, refuse_features
from lithify.delta.changes import BASE_PATH, plain_types
from lithify.delta.commit import commit
from lithify.delta.log import DeltaLog
from lithify.errors import Conflict, Corruption, InvalidRequest, LithifyError, NotFound
from lithify.files.addresses import is_remote
from lithify.files.examine import examine
from lithify.files.local_files import bring
from lithify.files.open_parquet import footer_of, hive_partitions, open_file, read_footer
from lithify.files.open_storage import storage_of
from lithify.files.parquet import Layout, Written
from lithify.files.statistics import stats_json
from lithify.files.storage import Storage
from lithify.files.user_files import is_folder, lies_in, parquet_files, real_path, sizes_bytes
from lithify.index.rebuild import build_after_adoption
from lithify.lake.catalog import Catalog
from lithify.lake.drop import owner_of
from lithify.tables.handles import Handles
from lithify.tables.runtime import Runtime

logger = logging.getLogger(__name__)


def adopt(
    runtime: Runtime,
    catalog: Catalog,
    name: TableName,
    path: PurePath,
    key: str | Iterable[str] | None,
    order_by: str | Iterable[str] | None,
    *,
    verify: bool,
    allowed: Callable[[PurePath], None],
) -> None:
    """`allowed` is told of a Delta table that becomes a base before it is one: whoever opens the lake next may read it,
    also if nobody hears how this ends.
    """
    if not is_folder(path):
        raise NotFound(f"{path} is no folder: adopt takes a Delta table or a folder of Parquet files")
    _check_reach(runtime, path)
    if lies_in(path, runtime.root):
        raise InvalidRequest(f"{path} lies inside this lake: adopt takes tables from elsewhere")
    _check_is_no_table(path)
    runtime.store.path_guard.allow(path)  # whoever adopts names it
    runtime.store.path_guard.trust(path)
    if catalog.exists(name):
        raise Conflict(f"table {name} exists already: drop it first, or choose another name")
    is_delta = is_remote(path) == runtime.store.remote and DeltaLog.exists(path, runtime.store)
    found = (_delta_table if is_delta else _parquet_folder)(runtime, name, path, key, order_by)
    if verify:
        _verify_keys(runtime, path, found.sources, found.schema)
    if is_delta:
        allowed(path)
    catalog.create(name, found.schema, if_not_exists=False, settings=found.settings, fill=found.fill)
    try:
        handles = Handles(runtime, name)
    except Exception as error:
        logger.warning("no index was built of %s, which cannot be opened now: %s", name, error)
    else:
        build_after_adoption(handles)


def _check_is_no_table(path: PurePath) -> None:
    """The base of a table, of whatever lake: folds of two tables on it would each take the other's watermark for their
    own, and drop changes that are not folded. Nothing in its log tells it from a plain Delta table.
    """
    real = path if is_remote(path) else PurePath(real_path(path))
    changes = real.parent / "changes"
    if real.name == "base" and DeltaLog.exists(changes, storage_of(changes)):
        raise Conflict(
            f"{path} is the base of a table of the lake {real.parent.parent.parent} already: open that lake, or copy "
            "the folder elsewhere and adopt the copy"
        )


def _check_reach(runtime: Runtime, path: PurePath) -> None:
    """A Delta table stays where it is, and files in a bucket stay in a bucket."""
    if is_remote(path) and not runtime.store.remote:
        raise InvalidRequest(f"{path} lies in a bucket, and this lake does not: adopt it in a lake that does")
    if runtime.store.remote and not is_remote(path) and DeltaLog.exists(path, storage_of(path)):
        raise InvalidRequest(
            f"{path} lies on this machine, and this lake in a bucket: a Delta table is adopted where it is; copy it "
            "into the bucket first"
        )


@dataclass(frozen=True)
class _Found:
    """What there is to adopt, and how it becomes a base."""

    schema: TableSchema
    sources: Sequence[Source]
    fill: Callable[[BaseLog], None]
    settings: Mapping[str, str] | None = None


def _delta_table(
    runtime: Runtime, name: TableName, path: PurePath, key: Any, order_by: str | Iterable[str] | None
) -> _Found:
    log = DeltaLog.open(path, runtime.store)
    refuse_features(log)
    refuse_demands(log)
    schema = define(plain_types(log.columns()), key, order_by, None, log.partition_columns)
    files = log.files([*schema.key, *schema.partition_by])
    sources = [
        Source(
            f"{path}/{f.path}",
            f.rows,
            f.size_bytes,
            tuple((n, f.partition[n]) for n in schema.partition_by),
            foreign=True,
        )
        for f in files
    ]
    for file in files:
        check_removable(file, path)
    listed = set(runtime.store.below(path)) if runtime.store.remote else None
    for file in files:
        if file.path not in listed if listed is not None else not runtime.store.exists(path / file.path):
            raise Corruption(
                f"{path}/{file.path} is missing although the log of {path} names it: restore it, then adopt the table"
            )
    _refuse_problems(path, sources)
    owner = owner_of(runtime, name)

    def own(base: BaseLog) -> None:
        """Two tables on one base would take each other's watermark for their own."""

        def build() -> LogChange:
            if (other := base.log.properties.get(OWNER)) and other != owner:
                raise Conflict(f"{path} is the base of table {other} already: drop that table first")
            return LogChange({"operation": "adopt"}, properties={OWNER: owner})

        commit(runtime, base.log, f"adopting {path}", build)

    return _Found(schema, sources, own, {BASE_PATH: str(path)})


def _parquet_folder(
    runtime: Runtime, name: TableName, path: PurePath, key: Any, order_by: str | Iterable[str] | None
) -> _Found:
    paths = [
        f
        for f in parquet_files(path, below=True)
        if not any(part.startswith(("_", ".")) for part in f.relative_to(path).parts)
    ]
    if not paths:
        raise NotFound(f"{path} holds neither a Delta table nor Parquet files")
    sizes = dict(zip(paths, sizes_bytes(paths), strict=True))
    sources = [Source(str(f), -1, sizes[f]) for f in paths]
    _refuse_problems(path, sources)
    columns, partition_by, constants = _parquet_columns(path, sizes)
    schema = define(columns, key, order_by, None, partition_by)
    if is_remote(path) == runtime.store.remote:
        runtime.store.path_guard.check_files(path, [f.relative_to(path).as_posix() for f in paths])
    sources = [
        Source(str(f), -1, sizes[f], tuple((n, constants[f][n]) for n in partition_by), foreign=True) for f in paths
    ]
    return _Found(schema, sources, lambda base: _link_into(runtime, base, schema, path, sizes, constants))


def _link_into(
    runtime: Runtime,
    base: BaseLog,
    schema: TableSchema,
    path: PurePath,
    sizes: Mapping[PurePath, int],
    constants: dict[PurePath, dict[str, Any]],
) -> None:
    root, opened_at = base.log.path, base.log.version
    folder = f"{ADOPTED}-{runtime.new_id()}"

    def build() -> LogChange:
        if base.log.version != opened_at:
            raise Conflict(f"the base of {base.table} was changed while it was filled: adopt again")
        adds = _linked(runtime.store, root, folder, schema, sizes, constants)
        info = {
            "operation": "adopt",
            "detail": str(path),
            "rows": sum(written.rows for written, _ in adds),
            "actor": runtime.settings.actor,
        }
        return base.with_watermark(LogChange(info, adds, data_change=True))

    def discard() -> None:
        with contextlib.suppress(LithifyError):  # vacuum finds it
            runtime.store.delete_folder(root / folder)

    commit(runtime, base.log, f"filling {root}", build, discard=discard)


def _linked(
    store: Storage,
    root: PurePath,
    folder: str,
    schema: TableSchema,
    sizes: Mapping[PurePath, int],
    constants: dict[PurePath, dict[str, Any]],
) -> list[tuple[Written, Mapping[str, str | None]]]:
    """Second names for the files, durable, in a folder below `root`."""
    layout = Layout.of(schema)
    adds: list[tuple[Written, Mapping[str, str | None]]] = []
    store.make_folder(root / folder)
    for number, source in enumerate(sizes):
        target = f"{folder}/part-{number:05d}.parquet"
        (store.copy if is_remote(source) else store.upload)(source, root / target)
        store.sync_file(root / target)
        footer = read_footer(source)
        known = footer_of(footer, source)
        stats = stats_json(known, schema.columns, layout.stats_columns)
        size = sizes[source] if store.remote else store.size(root / target)
        written = Written(target, size, known.metadata.num_rows, stats, footer)
        adds.append((written, partition_strings(schema, constants[source])))
    store.sync_folder(root / folder)
    store.sync_folder(root)
    return adds


def _parquet_columns(
    root: PurePath, sizes: Mapping[PurePath, int]
) -> tuple[pa.Schema, list[str], dict[PurePath, dict[str, Any]]]:
    merged: dict[str, pa.Field] = {}
    paths = list(sizes)
    bring(sizes.items())
    for path in paths:
        try:
            with open_file(path, sizes[path]) as file:
                found = file.schema_arrow
        except Corruption as error:
            raise Corruption(f"{path} cannot be read as Parquet: remove or repair it, then adopt the folder") from error
        for column in found:
            if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
                raise InvalidRequest(
                    f"{path}: column {column.name!r} holds nanoseconds, which Spark and Delta cannot read: load "
                    "it with ingest instead"
                )
            known = merged.setdefault(column.name, column)
            if known.type != column.type:
                raise InvalidRequest(
                    f"{path}: column {column.name!r} is {column.type}, but {known.type} in other files: load them "
                    "with ingest instead"
                )
    partitions, values = hive_partitions(root, paths)
    added = [column for column in partitions if column.name not in merged]
    names = [column.name for column in added]
    constants = {path: {name: values[path].get(name) for name in names} for path in paths}
    columns = pa.schema([*(f.with_nullable(True) for f in merged.values()), *added])
    return columns.remove_metadata(), names, constants


def _refuse_problems(path: PurePath, sources: Sequence[Source]) -> None:
    problems = list(examine([(source.path, source.size_bytes) for source in sources]).values())
    if problems:
        more = f" ({plural(len(problems) - 1, 'more file')} like that)" if len(problems) > 1 else ""
        first = problems[0]
        raise type(first)(f"{path} cannot be adopted: {first.message}{more}", **first.details) from first


def _verify_keys(runtime: Runtime, path: PurePath, sources: Sequence[Source], schema: TableSchema) -> None:
    if not schema.keyed or not sources:
        return
    bad = runtime.serving.key_queries.duplicate_keys(sources, schema.select(schema.key))
    if bad.num_rows:
        examples = ", ".join(str(tuple(row[n] for n in schema.key)) for row in bad.to_pylist())
        raise InvalidRequest(
            f"{path}: {', '.join(schema.key)} is no key, some values are null or stand more than once, e.g. {examples}"
        )
