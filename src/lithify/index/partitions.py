"""What base holds, partition by partition, told without opening a data file.

The log names each file with its partition, size, rows and the bounds of the time column. Where it does not (files of
other writers, which may leave statistics out or cut them to milliseconds) the index does. A sum or a bound that one
file leaves open is unknown for its partition: None, never a guess.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.results import PartitionStats, Time
from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile
from lithify.index.stats import EXACT, NULLS_KNOWN, ColumnStats, Kind, value_of

if TYPE_CHECKING:
    from lithify.index.reader import View

_TIMES = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_UTC)


class FileFacts(NamedTuple):
    """What is known of one file; None where nothing is. `empty`: no row of it has a time."""

    rows: int | None
    time_min: Time | None
    time_max: Time | None
    empty: bool = False


Lookup = Callable[[Sequence[DataFile]], Mapping[str, FileFacts]]
"""What the index knows of some files, by path."""


def partitions_of(files: Iterable[DataFile], schema: TableSchema, look_up: Lookup) -> list[PartitionStats]:
    """In the order of their values, nulls last."""
    told = [(file, _told_by_log(file, schema.time)) for file in files]
    vague = [file for file, facts in told if not _complete(facts, schema.time)]
    known = look_up(vague) if vague else {}
    groups: dict[tuple[Any, ...], list[tuple[DataFile, FileFacts]]] = {}
    for file, facts in told:
        values = tuple(file.partition.get(name) for name in schema.partitions)
        groups.setdefault(values, []).append((file, _completed(facts, known.get(file.path))))
    ordered = sorted(groups, key=lambda values: tuple((value is None, value) for value in values))
    return [_summed(dict(zip(schema.partitions, values, strict=True)), groups[values]) for values in ordered]


def _told_by_log(file: DataFile, time: str | None) -> FileFacts:
    rows = file.rows if file.rows >= 0 else None
    if time is None:
        return FileFacts(rows, None, None)
    bound = file.bound(time)
    if rows is not None and bound.nulls == rows:
        return FileFacts(rows, None, None, empty=True)
    # Timestamps of other writers are cut to milliseconds in the log: good enough to prune, not to be shown.
    cut = file.origin == "foreign" and isinstance(bound.high, dt.datetime)
    return FileFacts(rows, None, None) if cut else FileFacts(rows, bound.low, bound.high)


def _complete(facts: FileFacts, time: str | None) -> bool:
    timed = time is None or facts.empty or (facts.time_min is not None and facts.time_max is not None)
    return facts.rows is not None and timed


def _completed(facts: FileFacts, known: FileFacts | None) -> FileFacts:
    if known is None:
        return facts
    return FileFacts(
        facts.rows if facts.rows is not None else known.rows,
        facts.time_min if facts.time_min is not None else known.time_min,
        facts.time_max if facts.time_max is not None else known.time_max,
        facts.empty or known.empty,
    )


def _summed(values: Mapping[str, Any], members: list[tuple[DataFile, FileFacts]]) -> PartitionStats:
    rows = [facts.rows for _, facts in members]
    timed = [facts for _, facts in members if not facts.empty]
    lows, highs = [facts.time_min for facts in timed], [facts.time_max for facts in timed]
    return PartitionStats(
        values=values,
        files=len(members),
        rows=None if None in rows else sum(count for count in rows if count is not None),
        size_bytes=sum(file.size_bytes for file, _ in members),
        time_min=None if None in lows else min((low for low in lows if low is not None), default=None),
        time_max=None if None in highs else max((high for high in highs if high is not None), default=None),
    )


def facts_in(view: View, files: Iterable[DataFile], time: str | None) -> dict[str, FileFacts]:
    """What an index knows of these files. An entry of another size is of another file."""
    sizes = {file.path: file.size_bytes for file in files}
    wanted = pa.array(sizes, pa.string())
    found: dict[str, FileFacts] = {}
    for part in view.blocks:
        block = part.block
        stats = block.stats(time) if time is not None else None
        for number in pc.indices_nonzero(pc.is_in(block.paths, value_set=wanted)).to_pylist():
            path = block.paths[number].as_py()
            if not part.live[number] or int(block.sizes[number]) != sizes[path]:
                continue
            groups = slice(int(block.first_group[number]), int(block.first_group[number + 1]))
            low, high, empty = _times(stats, groups) if stats is not None else (None, None, False)
            found[path] = FileFacts(int(block.rows[number]), low, high, empty)
    return found


def _times(stats: ColumnStats, groups: slice) -> tuple[Time | None, Time | None, bool]:
    """Lowest and highest of some row groups, and whether all of them are empty. Only bounds that occur are shown."""
    flags, rows, nulls = stats.flags[groups], stats.rows[groups], stats.nulls[groups]
    filled = ~((flags & NULLS_KNOWN != 0) & (rows == nulls))
    if not filled.any():
        return None, None, True
    if stats.kind not in _TIMES or not bool((flags[filled] & EXACT == EXACT).all()):
        return None, None, False
    try:
        low, high = int(np.min(stats.low[groups][filled])), int(np.max(stats.high[groups][filled]))
        return value_of(stats, low), value_of(stats, high), False
    except OverflowError:  # beyond what Python can show
        return None, None, False
