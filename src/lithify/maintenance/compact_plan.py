"""Which base files are merged with which others: tiers where there is time, bin-packing for the rest. Pure.

A plan's files lie in one partition of base. In a `_day` partition the tiers plan from the lowest up; a file is in the
window of its latest row. Everything else (tables with no time column, rows with no time) is packed in key order.

What is eligible is cut into batches of at most `batch_files_max` files and one target's worth of bytes. A file larger
than all others of its batch together is left out, so every byte that is rewritten ends up in a file at least twice as
large as the one it came from: it is rewritten a logarithmic number of times, and planning comes to an end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from lithify.core.names import DAY
from lithify.core.partitioning import partition_strings
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot, bytes_of
from lithify.core.wording import plural
from lithify.maintenance.plans import CompactPlan
from lithify.options.policy import BATCH_FILES_MAX, BATCH_FILES_MIN, MaintenancePolicy
from lithify.options.tiers import DAY_S, US, Tier, TierNames, Window, tier_named, tier_names

PACK, CLUSTER = "pack", "cluster"
PACK_SHARE_MAX = 0.75
OWN_SHARE_MAX = 0.5
CLUSTER_SHARE_MAX = 0.125
BATCH_SLACK = 1.1

_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def compactions(
    snapshot: Snapshot,
    policy: MaintenancePolicy,
    now_ms: int,
    busy: Collection[str] = frozenset(),
    tier: TierNames = None,
) -> list[CompactPlan]:
    """Plans that share no file, those of one partition in the order to run them. `busy`: paths of base files to leave
    alone. `tier`: only that one, or these, "pack" among them; a tier that is off plans nothing.
    """
    wanted = tier_names(tier)
    for name in wanted:
        if name != PACK:
            tier_named(policy.tiers, name, besides=(PACK,))
    taken = set(busy)
    plans: list[CompactPlan] = []
    parts = list(_partitions(snapshot))
    for each in policy.tiers:
        if not each.enabled or (wanted and each.name not in wanted):
            continue
        for part in parts:
            if part.day is not None and len(part.files) >= each.files_min:
                free = [file for file in part.files if file.path not in taken]
                found = _tier_plans(part, free, each, policy, now_ms)
                taken.update(file.path for plan in found for file in plan.files)
                plans += found
    if not wanted or PACK in wanted:
        for part in parts:
            if part.day is None:
                plans += _pack_plans(part, [file for file in part.files if file.path not in taken], policy)
    return plans


@dataclass(frozen=True)
class _Partition:
    table: str
    schema: TableSchema
    values: Mapping[str, str | None]
    day: dt.date | None
    files: tuple[DataFile, ...]

    @cached_property
    def day_window(self) -> Window:
        assert self.day is not None
        start = (self.day - _EPOCH_DAY).days * DAY_S * US
        return Window(start, start + DAY_S * US)

    @cached_property
    def counts_days(self) -> bool:
        return bool(self.schema.time and pa.types.is_date(self.schema.columns.field(self.schema.time).type))

    @property
    def shown(self) -> str:
        """The partition as a reader of a plan knows it, its day apart."""
        others = [f"{name}={value}" for name, value in self.values.items() if name != DAY]
        return f" of {', '.join(others)}" if others else ""


def _partitions(snapshot: Snapshot) -> Iterable[_Partition]:
    schema = snapshot.schema
    groups: dict[tuple[tuple[bool, str], ...], list[DataFile]] = {}
    known: dict[tuple[Any, ...], list[DataFile]] = {}
    for file in snapshot.base:
        spelled = tuple(file.partition.items())
        found = known.get(spelled)
        if found is None:
            values = partition_strings(schema, file.partition)
            key = tuple((text is not None, text or "") for text in values.values())
            found = known[spelled] = groups.setdefault(key, [])
        found.append(file)
    for _, files in sorted(groups.items()):
        day = files[0].partition.get(DAY) if schema.time else None
        yield _Partition(
            snapshot.table, schema, partition_strings(schema, files[0].partition), _date(day), tuple(files)
        )


# -- tiers


@dataclass(frozen=True)
class _Windowed:
    """A file with the window it belongs to. `spans`: how many windows its rows lie in; 0 if they are not told apart."""

    file: DataFile
    window: Window
    spans: int
    first_us: int


def _tier_plans(
    part: _Partition, files: Iterable[DataFile], tier: Tier, policy: MaintenancePolicy, now_ms: int
) -> list[CompactPlan]:
    levels = {each.name: each.level for each in policy.tiers}
    windows: dict[tuple[Window, bool], list[_Windowed]] = {}
    for file in files:
        if _wanted(file, tier, levels, policy):
            windowed = _windowed(part, file, tier)
            windows.setdefault((windowed.window, windowed.spans > 0), []).append(windowed)
    plans: list[CompactPlan] = []
    for (window, split), members in sorted(windows.items()):
        old_enough = now_ms * 1_000 - window.end_us >= tier.age_min_s * US
        if not old_enough or len(members) < tier.files_min:
            continue
        why = f"{tier.name}: {len(members)} files in {window}{part.shown}, at least {tier.files_min}"
        spans = {windowed.file.path: windowed.spans for windowed in members}
        ordered = [p.file for p in sorted(members, key=lambda p: (p.first_us, p.file.path))]
        for batch in batches(ordered, policy.batch_files_max, tier.target_bytes):
            outputs = _outputs(batch, tier.target_bytes, max(spans[file.path] for file in batch))
            if outputs < len(batch):
                length_us = tier.window_s * US if split else None
                plans.append(_plan(part, tier.name, batch, tier.target_bytes, why, outputs, length_us))
    return plans


def _wanted(file: DataFile, tier: Tier, levels: Mapping[str, int], policy: MaintenancePolicy) -> bool:
    origin = file.origin
    if origin == tier.name:
        return file.size_bytes < OWN_SHARE_MAX * tier.target_bytes
    lower = levels.get(origin, 0) < tier.level
    return lower and file.size_bytes < tier.target_bytes and (origin != CLUSTER or _may_lose_order(file, policy))


def _may_lose_order(file: DataFile, policy: MaintenancePolicy) -> bool:
    """What clustering wrote keeps its order, unless it is a mere fragment."""
    return file.origin != CLUSTER or file.size_bytes < CLUSTER_SHARE_MAX * policy.cluster_target_bytes


def _windowed(part: _Partition, file: DataFile, tier: Tier) -> _Windowed:
    """Within a day, a file whose rows lie in few windows belongs to the latest of them, and is split when rewritten.
    A wide one, and one whose times are not known, belongs to the day as a whole.
    """
    assert part.schema.time is not None
    day = part.day_window
    start = day.start_us
    bounds = file.bound(part.schema.time)
    low, high = (_microseconds(bounds.low), _microseconds(bounds.high)) if bounds.known else (start, day.end_us - 1)
    low, high = max(low, start), max(start, min(high, day.end_us - 1))
    if not tier.within_day:
        return _Windowed(file, tier.window_of(start), 0, low)
    if not bounds.known or part.counts_days:
        return _Windowed(file, day, 0, low)
    length_us = tier.window_s * US
    spans = high // length_us - low // length_us + 1
    wide = spans > max(1, tier.files_min // 2)
    return _Windowed(file, day, 0, low) if wide else _Windowed(file, tier.window_of(high), spans, low)


# -- packing


def _pack_plans(part: _Partition, files: Iterable[DataFile], policy: MaintenancePolicy) -> list[CompactPlan]:
    target = policy.pack_target_bytes
    small = [f for f in files if f.size_bytes < PACK_SHARE_MAX * target and _may_lose_order(f, policy)]
    if len(small) < policy.pack_files_min:
        return []
    where = " without a time" if DAY in part.values else ""
    why = f"{PACK}: {len(small)} small files{where}{part.shown}, at least {policy.pack_files_min}"
    ordered = sorted(small, key=lambda file: _sort_key(part.schema, file))
    plans = []
    for batch in batches(ordered, policy.batch_files_max, target):
        outputs = _outputs(batch, target)
        if outputs < len(batch):
            plans.append(_plan(part, PACK, batch, target, why, outputs))
    return plans


def _sort_key(schema: TableSchema, file: DataFile) -> tuple[Any, ...]:
    """Neighbours in the order of the rows, so that outputs get narrow ranges; where rows have no order, by age."""
    if not schema.sort_columns:
        return (file.time_ms, file.path)
    low = file.bound(schema.sort_columns[0]).low
    return (1, file.path) if low is None else (0, low, file.path)


# -- batches


def batches(files: Sequence[DataFile], files_max: int, target_bytes: int) -> list[list[DataFile]]:
    """Batches of at least two files, in the order given, each worth rewriting. What is left over is in none."""
    limit = min(max(files_max, BATCH_FILES_MIN), BATCH_FILES_MAX)
    found: list[list[DataFile]] = []
    pool = list(files)
    while len(pool) > 1:
        cut = _cut(pool, limit, target_bytes)
        trimmed = [_without_giants(batch) for batch in cut]
        worth = [batch for batch in trimmed if len(batch) > 1]
        found += worth
        gone = {file.path for batch in worth for file in batch} or _in_the_way(pool, cut, trimmed, target_bytes)
        pool = [file for file in pool if file.path not in gone]
    return found


def _in_the_way(
    pool: Sequence[DataFile], cut: Sequence[list[DataFile]], trimmed: Sequence[list[DataFile]], target_bytes: int
) -> set[str]:
    """What keeps the small files of a fruitless round apart: the giants of its batches, or what fits into none."""
    staying = {file.path for batch in trimmed for file in batch}
    giants = {file.path for batch in cut for file in batch} - staying
    # Where every batch is a single file, two neighbours are above the target together, and one of them above half.
    return giants or {file.path for file in pool if 2 * file.size_bytes > target_bytes}


def _cut(files: Sequence[DataFile], limit: int, target_bytes: int) -> list[list[DataFile]]:
    cut: list[list[DataFile]] = [[]]
    bytes_in = 0
    for file in files:
        if cut[-1] and (len(cut[-1]) >= limit or bytes_in + file.size_bytes > target_bytes):
            cut.append([])
            bytes_in = 0
        cut[-1].append(file)
        bytes_in += file.size_bytes
    if len(cut) > 1 and len(cut[-1]) == 1:
        before, last = cut[-2], cut[-1]
        if len(before) < BATCH_FILES_MAX and bytes_of([*before, *last]) <= BATCH_SLACK * target_bytes:
            cut[-2:] = [[*before, *last]]
        elif len(before) == BATCH_FILES_MAX and bytes_of([before[-1], *last]) <= target_bytes:
            cut[-2:] = [before[:-1], [before[-1], *last]]
    return cut


def _without_giants(batch: list[DataFile]) -> list[DataFile]:
    left = list(batch)
    while len(left) > 1:
        largest = max(left, key=lambda file: (file.size_bytes, file.path))
        if 2 * largest.size_bytes <= bytes_of(left):
            break
        left.remove(largest)
    return left


def _outputs(batch: Sequence[DataFile], target_bytes: int, spans: int = 0) -> int:
    """How many files come out at most: one, or one per window, and one more for each target's worth within."""
    # A batch may be slightly above the target, and is then still one file.
    return max(spans, 1) + int(bytes_of(batch) / (BATCH_SLACK * target_bytes))


def _plan(
    part: _Partition,
    origin: str,
    batch: Sequence[DataFile],
    target_bytes: int,
    why: str,
    outputs: int,
    window_us: int | None = None,
) -> CompactPlan:
    gain = f"{plural(len(batch), 'file')} → {'up to ' if outputs > 1 else ''}{outputs}"
    return CompactPlan(
        part.table, origin, tuple(batch), part.values, target_bytes, why, gain, bytes_of(batch), window_us
    )


def _date(value: Any) -> dt.date | None:
    """A partition's day, which logs spell as a date or its text."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return dt.date.fromisoformat(value)
    return value.date() if isinstance(value, dt.datetime) else value


def _microseconds(value: dt.date | dt.datetime) -> int:
    """Since 1970 UTC; a time without a zone is UTC."""
    if not isinstance(value, dt.datetime):
        return (value - _EPOCH_DAY).days * DAY_S * US
    moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)
