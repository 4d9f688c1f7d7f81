"""Which row groups can hold a row that satisfies a predicate: `False` only with proof.

A part of a predicate rules a row group out when its statistics prove that the part is TRUE for none of its rows. A
conjunction rules out what any part does, a disjunction what every part does. Whatever is not understood (a literal that
does not fit the column, a missing bound, a column that the file lacks) rules nothing out.

Every comparison is one pass over an array of sort keys. Where the keys hold only the first bytes of the values, equal
keys decide nothing, and the few row groups where it comes to that are looked at one by one.

NULL: no comparison is TRUE for it, so a row group of nulls alone is ruled out by any.
NaN: statistics pass over it, and engines take it for the greatest or, by its sign, the least of all numbers. So without
the word that there is none, no bound answers <, <=, >, >= or <>. Equality with a number is never TRUE for NaN.
Zero: engines differ on whether -0.0 < 0.0. So here each may be less than the other, and may differ from it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lithify.core.predicates import (
    UNKNOWN,
    And,
    Compare,
    In,
    IsNull,
    Or,
    Predicate,
    Prefix,
    Unknown,
    both,
    conjuncts,
    either,
)
from lithify.index.sort_keys import INT64_MAX, INT64_MIN, SortedKeys, point_of, sorted_column, sorted_literals
from lithify.index.stats import (
    ABSENT,
    HAS_MAX,
    HAS_MIN,
    MAX_EXACT,
    MIN_EXACT,
    NAN_FREE,
    NULLS_KNOWN,
    ColumnStats,
    Kind,
    bytes_key,
)

Groups: TypeAlias = NDArray[np.bool_]
StatsOf: TypeAlias = Callable[[str], ColumnStats | None]

# Row groups with equal keys that are looked at one by one; where there are more, they are kept.
CLOSE_LOOKS_MAX = 4096
EXACT_BOUNDS = HAS_MIN | HAS_MAX | MIN_EXACT | MAX_EXACT
DECIMAL_DIGITS_NARROW, DECIMAL_DIGITS_WIDE = 18, 38


def may_match(predicate: Predicate, groups: int, stats_of: StatsOf) -> Groups:
    """Per row group: can it hold a row for which the predicate is TRUE?"""
    ruled_out = _ruled_out(predicate, cache(stats_of))
    if ruled_out is None:
        return np.ones(groups, np.bool_)
    assert ruled_out.shape == (groups,), f"statistics of {ruled_out.shape} row groups, not {groups}"
    return ~ruled_out


def may_match_each(predicate: Predicate, groups: int, stats_of: StatsOf) -> list[tuple[str, int]]:
    """Per part that must hold: its text, and how many row groups it rules out alone."""
    matches = ((part, may_match(part, groups, stats_of)) for part in conjuncts(predicate))
    return [(str(part), groups - int(np.count_nonzero(keep))) for part, keep in matches]


def may_match_constants(predicate: Predicate, constants: Mapping[str, Any]) -> bool:
    """The same for rows that share the values of some columns, of which the others are not known."""

    def stats_of(column: str) -> ColumnStats | None:
        return _stats_of_constant(constants[column]) if column in constants else None

    return bool(may_match(predicate, 1, stats_of)[0])


def may_hold_keys(stats: ColumnStats, keys: pa.ChunkedArray) -> Groups:
    """Per row group: can it hold one of many keys? A null key is looked for among the nulls."""
    found = sorted_column(stats.kind, stats.scale, keys)
    if found is None:
        return np.ones(len(stats.flags), np.bool_)
    without = _holds_none(stats, found) | _only_nulls(stats)
    if keys.null_count:
        without &= _no_nulls(stats)
    return ~without


def equalities(predicate: Predicate) -> Predicate:
    """What of it a bloom filter can be asked about: lists of values of which a row must hold one, under AND and OR.

    NaN and floating zero have several encodings that engines take for one value, so they are left out, and with them
    the list they stand in. An integer or decimal zero may still be meant for a column of floats.
    """
    match predicate:
        case And(parts):
            return both(map(equalities, parts))
        case Or(parts):
            return _one_list_per_column(either(map(equalities, parts)))
        case Compare(column, "=", value):
            return _asked(column, (value,))
        case In(column, values, False):
            return _asked(column, values)
        case _:
            return UNKNOWN


def _asked(column: str, values: tuple[Any, ...]) -> Predicate:
    given = tuple(value for value in values if value is not None)
    if not given or any(_is_nan(value) or (isinstance(value, float) and value == 0) for value in given):
        return UNKNOWN
    return In(column, given)


def _one_list_per_column(asked: Predicate) -> Predicate:
    if not isinstance(asked, Or):
        return asked
    lists: dict[str, list[Any]] = {}
    others = []
    for part in asked.parts:
        if isinstance(part, In):
            lists.setdefault(part.column, []).extend(part.values)
        else:
            others.append(part)
    return either([*(In(column, tuple(values)) for column, values in lists.items()), *others])


def _ruled_out(predicate: Predicate, stats_of: StatsOf) -> Groups | None:
    """None: nothing is."""
    match predicate:
        case And(parts):
            found = [out for part in parts if (out := _ruled_out(part, stats_of)) is not None]
            return np.logical_or.reduce(found) if found else None
        case Or(parts):
            branches = []
            for part in parts:
                out = _ruled_out(part, stats_of)
                if out is None:
                    return None
                branches.append(out)
            return np.logical_and.reduce(branches) if branches else None
        case Unknown():
            return None
    stats = stats_of(predicate.column)
    if stats is None:
        return None
    match predicate:
        case IsNull(_, negated):
            return _only_nulls(stats) if negated else _no_nulls(stats)
        case Compare(_, op, value):
            return _comparison(stats, op, value)
        case In(_, values, negated):
            return _membership(stats, values, negated)
        case Prefix(_, prefix):
            return _or_only_nulls(stats, _prefix(stats, prefix))


def _comparison(stats: ColumnStats, op: str, value: Any) -> Groups | None:
    if op in ("=", "<>"):
        return _membership(stats, (value,), op == "<>")
    if value is None or _is_nan(value):
        return None
    point = point_of(stats.kind, stats.scale, value)
    if point is None:
        return _only_nulls(stats)
    edge, exact = point.floor, point.exact
    touches = {"<": not exact, "<=": True, ">": False, ">=": exact}[op]
    if stats.kind is Kind.FLOAT and edge == 0:
        touches = True
    return _or_only_nulls(stats, (_all_above if op in ("<", "<=") else _all_below)(stats, edge, touches))


def _membership(stats: ColumnStats, values: tuple[Any, ...], negated: bool) -> Groups | None:
    given = [value for value in values if value is not None]
    # A list without values, or of which a NULL makes NOT IN never TRUE, is left to the engine.
    if not given or (negated and len(given) < len(values)) or any(_is_nan(value) for value in given):
        return None
    found = sorted_literals(stats.kind, stats.scale, given)
    if found is None:
        return _only_nulls(stats)
    return _or_only_nulls(stats, _holds_only(stats, found) if negated else _holds_none(stats, found))


def _prefix(stats: ColumnStats, prefix: str | bytes) -> Groups | None:
    point = point_of(stats.kind, stats.scale, prefix)
    if point is None:
        return None
    out = _all_below(stats, point.floor, touches=True)
    stem = point.floor.rstrip(b"\xff")
    if stem:
        # The least value after all that start with the prefix.
        out |= _all_above(stats, stem[:-1] + bytes([stem[-1] + 1]), touches=False)
    return out


def _only_nulls(stats: ColumnStats) -> Groups:
    out: Groups = _with(stats, NULLS_KNOWN) & (stats.nulls == stats.rows)
    return out


def _no_nulls(stats: ColumnStats) -> Groups:
    out: Groups = _with(stats, NULLS_KNOWN) & (stats.nulls == 0)
    return out


def _or_only_nulls(stats: ColumnStats, out: Groups | None) -> Groups:
    return _only_nulls(stats) if out is None else out | _only_nulls(stats)


def _with(stats: ColumnStats, flags: int) -> Groups:
    """Row groups that have the column and all these flags."""
    out: Groups = (stats.flags & np.uint8(flags | ABSENT)) == flags
    return out


def _bounded_below(stats: ColumnStats, flags: int = HAS_MIN) -> Groups:
    known = _with(stats, flags)
    return known & ~np.isnan(stats.low) if stats.kind is Kind.FLOAT else known


def _bounded_above(stats: ColumnStats, flags: int = HAS_MAX) -> Groups:
    known = _with(stats, flags)
    return known & ~np.isnan(stats.high) if stats.kind is Kind.FLOAT else known


def _nan_free(stats: ColumnStats) -> int:
    return NAN_FREE if stats.kind is Kind.FLOAT else 0


def _all_above(stats: ColumnStats, edge: Any, touches: bool) -> Groups:
    """Row groups of which every value lies above the edge, or upon it where `touches` is false."""
    known = _bounded_below(stats, HAS_MIN | _nan_free(stats))
    if not stats.kind.keyed_by_bytes:
        out: Groups = known & (stats.low > edge if touches else stats.low >= edge)
        return out
    key = bytes_key(edge)
    out = known & (stats.low > key)
    _look_closer(
        out,
        known & (stats.low == key),
        (lambda group: stats.full_low(group) > edge) if touches else (lambda group: stats.full_low(group) >= edge),
    )
    return out


def _all_below(stats: ColumnStats, edge: Any, touches: bool) -> Groups:
    """Row groups of which every value lies below the edge, or upon it where `touches` is false."""
    known = _bounded_above(stats, HAS_MAX | _nan_free(stats))
    if not stats.kind.keyed_by_bytes:
        out: Groups = known & (stats.high < edge if touches else stats.high <= edge)
        return out
    key = bytes_key(edge)
    out = known & (stats.high < key)
    _look_closer(
        out,
        known & (stats.high == key),
        (lambda group: stats.full_high(group) < edge) if touches else (lambda group: stats.full_high(group) <= edge),
    )
    return out


def _holds_none(stats: ColumnStats, wanted: SortedKeys) -> Groups:
    """Row groups whose bounds leave room for none of the values."""
    keys, by_bytes = wanted.keys, stats.kind.keyed_by_bytes
    if not len(keys):
        return _with(stats, 0)
    bounded_below, bounded_above = _bounded_below(stats), _bounded_above(stats)
    out: Groups = (bounded_below & (stats.low > keys[-1])) | (bounded_above & (stats.high < keys[0]))
    if len(keys) == 1 and not by_bytes:
        return out
    bounded = bounded_below & bounded_above & ~out
    if len(keys) == 1:
        close = bounded & ((stats.low == keys[0]) | (stats.high == keys[0]))
    else:
        groups = np.flatnonzero(bounded)
        low, high = stats.low[groups], stats.high[groups]
        out[groups[keys[np.searchsorted(keys, low)] > high]] = True
        if not by_bytes:
            return out
        after = np.searchsorted(keys, low, side="right")
        inside = (after < len(keys)) & (keys[np.minimum(after, len(keys) - 1)] < high)
        close = ~out
        close &= bounded
        close[groups[inside]] = False

    def misses(group: int) -> bool:
        position = bisect_left(range(len(keys)), stats.full_low(group), key=wanted.value)
        return position == len(keys) or wanted.value(position) > stats.full_high(group)

    _look_closer(out, close, misses)
    return out


def _holds_only(stats: ColumnStats, wanted: SortedKeys) -> Groups:
    """Row groups whose every value, nulls apart, is one and the same of these."""
    keys = wanted.keys
    if stats.kind is Kind.FLOAT:
        keys = keys[keys != 0]
    groups = np.flatnonzero(_with(stats, EXACT_BOUNDS | _nan_free(stats)) & (stats.low == stats.high))
    out = np.zeros(len(stats.flags), np.bool_)
    if not len(keys) or not len(groups):
        return out
    low = stats.low[groups]
    out[groups[keys[np.minimum(np.searchsorted(keys, low), len(keys) - 1)] == low]] = True
    if not stats.kind.keyed_by_bytes:
        return out

    def is_one(group: int) -> bool:
        value = stats.full_low(group)
        position = bisect_left(range(len(keys)), value, key=wanted.value)
        return value == stats.full_high(group) and position < len(keys) and wanted.value(position) == value

    close = out.copy()
    out[:] = False
    _look_closer(out, close, is_one)
    return out


def _look_closer(out: Groups, close: Groups, proves: Callable[[int], bool]) -> None:
    """Decide the row groups where keys were equal by their whole values, unless they are too many."""
    groups = np.flatnonzero(close)
    if len(groups) <= CLOSE_LOOKS_MAX:
        for group in groups.tolist():
            out[group] = proves(group)


def _is_nan(value: Any) -> bool:
    return (isinstance(value, float) and math.isnan(value)) or (isinstance(value, Decimal) and value.is_nan())


def _stats_of_constant(value: Any) -> ColumnStats | None:
    """A row group of one row."""
    kind, scale = _kind_of(value)
    point = point_of(kind, scale, value)
    if point is None and value is not None:
        return None
    full = point.floor if point and kind.keyed_by_bytes else b""
    key = bytes_key(full) if kind.keyed_by_bytes else point.floor if point else 0
    bounds = np.array([key], np.uint64 if kind.keyed_by_bytes else np.float64 if kind is Kind.FLOAT else np.int64)
    return ColumnStats(
        kind=kind,
        scale=scale,
        rows=np.array([1]),
        nulls=np.array([value is None]),
        flags=np.array([NULLS_KNOWN | (EXACT_BOUNDS | NAN_FREE if point else 0)], np.uint8),
        low=bounds,
        high=bounds,
        full_low=lambda _: full,
        full_high=lambda _: full,
    )


def _kind_of(value: Any) -> tuple[Kind, int]:
    match value:
        case bool():
            return Kind.BOOLEAN, 0
        case int():
            return (Kind.SIGNED if INT64_MIN <= value <= INT64_MAX else Kind.OTHER), 0
        case float():
            return Kind.FLOAT, 0
        case Decimal():
            exponent = value.as_tuple().exponent
            scale = max(0, -exponent) if isinstance(exponent, int) else 0
            digits = value.adjusted() + 1 + scale
            if digits > DECIMAL_DIGITS_WIDE:
                return Kind.OTHER, 0
            return (Kind.DECIMAL if digits <= DECIMAL_DIGITS_NARROW else Kind.WIDE_DECIMAL), scale
        case str():
            return Kind.TEXT, 0
        case bytes():
            return Kind.BINARY, 0
        case datetime():
            return (Kind.TIMESTAMP if value.tzinfo is None else Kind.TIMESTAMP_UTC), 0
        case date():
            return Kind.DATE, 0
        case _:
            return Kind.OTHER, 0
