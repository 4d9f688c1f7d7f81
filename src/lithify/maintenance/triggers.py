"""Deciding what a table needs: pure functions from a snapshot's file lists, a policy and a moment to plans.

Nothing here reads a file or a clock. Ages are never negative: after a clock has jumped back, work is merely postponed,
and after a jump forward it is done early; a plan is always one that would have been right at some moment.

Fold: when changes cost readers or memory too much, or have waited too long, and are enough for what has to be written
for them (`_put_off`). Minor: while a fold is not due yet, runs of small change files become one, so that a reader opens
few. Compaction stands in `compact_plan`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from lithify.core.schema import TableSchema
from lithify.core.snapshot import DataFile, Snapshot, bytes_of
from lithify.core.wording import plural
from lithify.maintenance.compact_plan import PACK, compactions
from lithify.maintenance.plans import Debt, FileCount, FoldDue, MinorPlan
from lithify.maintenance.read_cost import ReadCost, estimated_rows, read_cost, read_overhead, row_bytes
from lithify.options.policy import BATCH_FILES_MAX, MaintenancePolicy
from lithify.options.tiers import how_to_turn_on, tier_named

MERGEABLE_ORIGINS = frozenset({"write", "minor"})
READS_WIN, FILES_WIN, AGE_WINS = 2, 10, 24
# Rewriting less than this is not worth putting off.
FREE_BYTES = 2**20


def idle_tier(schema: TableSchema, policy: MaintenancePolicy, tier: str) -> str | None:
    """Why a tier has nothing to do on a table, however many files it has; None if it may have."""
    if tier == PACK:
        return None
    if schema.time is None:
        return f"it has no time column, so tiers do not apply to it; `--tier {PACK}` merges its small files"
    if not tier_named(policy.tiers, tier, besides=(PACK,)).enabled:
        return f"tier {tier} is off: {how_to_turn_on(tier)}"
    return None


# -- fold


def fold_due(snapshot: Snapshot, policy: MaintenancePolicy, now_ms: int) -> FoldDue | None:
    """Whether the pending changes should be folded now, or rows be dropped that have expired; `why` names every limit
    that was passed.
    """
    return _drop_due(snapshot, now_ms) or (_changes_due(snapshot, policy, now_ms) if snapshot.changes else None)


def _drop_due(snapshot: Snapshot, now_ms: int) -> FoldDue | None:
    if (expiry := snapshot.schema.expiry) is None:
        return None
    cutoff = expiry.at(now_ms)
    files = tuple(file for file in snapshot.base if expiry.worth_dropping(file.bound(expiry.column), cutoff))
    if not files:
        return None
    why = f"{plural(len(files), 'file')} with rows that have expired ({expiry})"
    return FoldDue(
        snapshot.table, why, f"up to {sum(file.rows for file in files):,} rows less", files, bytes_of(files), 0
    )


def _changes_due(snapshot: Snapshot, policy: MaintenancePolicy, now_ms: int) -> FoldDue | None:
    cost = read_cost(snapshot)
    reasons = list(_fold_reasons(snapshot, policy, now_ms, cost))
    if not reasons or _put_off(snapshot, policy, now_ms, cost):
        return None
    merged, touched = bytes_of(cost.merged), bytes_of(cost.touched)
    return FoldDue(
        table=snapshot.table,
        why="; ".join(reasons),
        gain=f"reads {cost.overhead:.1f}× → 1.0×, {plural(len(snapshot.changes), 'change file')} → 0",
        files=snapshot.changes,
        bytes_in=merged + touched,
        bytes_out=merged + touched,
    )


def _fold_reasons(snapshot: Snapshot, policy: MaintenancePolicy, now_ms: int, cost: ReadCost) -> Iterator[str]:
    if cost.overhead > policy.read_overhead_max:
        yield f"reads take {cost.overhead:.3g}× of a folded table's time, above {policy.read_overhead_max:g}×"
    pending, base = _rows(snapshot.changes, cost.row_bytes), _rows(snapshot.base, cost.row_bytes)
    if base and pending >= policy.fold_rows_min and pending / base > policy.fold_share_max:
        yield f"{100 * pending / base:.3g} % of rows changed, above {100 * policy.fold_share_max:g} %"
    if len(snapshot.changes) >= policy.fold_files_max:
        yield f"{plural(len(snapshot.changes), 'change file')}, limit {policy.fold_files_max:,}"
    # A time of 0 is one that the log does not tell.
    written = [file.time_ms for file in snapshot.changes if file.time_ms > 0]
    age_s = max(0, now_ms - min(written)) // 1_000 if written else 0
    if written and age_s >= policy.fold_age_s_max:
        yield f"the oldest change is {age_s:,} s old, limit {policy.fold_age_s_max:,} s"


def _put_off(snapshot: Snapshot, policy: MaintenancePolicy, now_ms: int, cost: ReadCost) -> bool:
    """Whether a fold would write too much for what it folds, and nothing that weighs more asks for it.

    Write amplification is how many bytes of base a byte of changes makes us write. A fold of changes to random keys
    rewrites every file that they can meet, so it pays to let them gather: folding when a share s of a table has changed
    writes 1 + 1/s bytes per byte. While a fold would exceed `write_amplification_max`, change files are merged among
    themselves instead, which keeps them few.

    Reads win in the end. A fold is not put off any longer when, after that merge, fresh reads would take `READS_WIN`
    times as long as they may for it to be due, when there are `FILES_WIN` times as many change files, or when a change
    has waited `AGE_WINS` times as long: what a reader feels stays bounded, and so does what other engines miss in base.
    Disk is bounded by retention.
    """
    if rewritten_bytes(cost) < FREE_BYTES or fold_amplification(cost) <= policy.write_amplification_max:
        return False
    if (merge := minor_due(snapshot, policy)) is not None:
        # Judged as it will be after that merge, which costs next to nothing.
        first, last = merge.files[0], merge.files[-1]
        merged = replace(last, rows=sum(file.rows for file in merge.files), time_ms=first.time_ms)
        rest = [file for file in snapshot.changes if not first.seq <= file.seq <= last.seq]
        snapshot = replace(snapshot, changes=(*rest, merged))
        cost = read_cost(snapshot)
    patient = replace(
        policy,
        read_overhead_max=policy.read_overhead_max * READS_WIN,
        fold_files_max=policy.fold_files_max * FILES_WIN,
        fold_age_s_max=policy.fold_age_s_max * AGE_WINS,
        fold_share_max=math.inf,
    )
    return not any(_fold_reasons(snapshot, patient, now_ms, cost))


def fold_amplification(cost: ReadCost) -> float:
    """Bytes written per byte of changes; 1 where nothing has to be rewritten for them."""
    return rewritten_bytes(cost) / max(changed_bytes(cost), 1)


def rewritten_bytes(cost: ReadCost) -> int:
    """What a fold of the pending changes would write: the files that they can meet, and themselves."""
    return bytes_of(cost.touched) + changed_bytes(cost)


def changed_bytes(cost: ReadCost) -> int:
    """Changes count as large as their rows are in base, not as their small files are on disk."""
    return int(_rows(cost.merged, cost.row_bytes) * cost.row_bytes)


# -- minor


def minor_due(snapshot: Snapshot, policy: MaintenancePolicy, busy: Collection[str] = frozenset()) -> MinorPlan | None:
    """The longest run of small change files worth merging into one per operation, the oldest of equals.

    A run is whole commits with no other pending commit between them. It must be at least half of `minor_files_min`
    times as large as its largest file, so that what one merge wrote is merged again only among its like: each byte is
    rewritten a logarithmic number of times. Nothing here depends on the time.
    """
    # Lines that count must not come to lie in one file with those of another side of the watermark (`merge/rules.py`).
    if not snapshot.schema.keyed or snapshot.schema.adds_up:
        return None
    growth = max(2, policy.minor_files_min // 2)
    best: list[DataFile] = []
    for piece in _pieces(snapshot, policy, busy):
        for run in _even_runs(piece, growth):
            files = [file for commit in run for file in commit]
            if len(files) >= policy.minor_files_min and len(files) > len(best):
                best = files
    operations = len({file.op for file in best})
    if len(best) <= operations:
        return None
    return MinorPlan(
        table=snapshot.table,
        files=tuple(best),
        why=f"minor: {len(best)} small change files in a row (seq {best[0].seq} to {best[-1].seq}), "
        f"at least {policy.minor_files_min}",
        gain=f"{plural(len(best), 'file')} → {'up to ' if operations > 1 else ''}{operations}",
        bytes_out=bytes_of(best),
    )


Commit = Sequence[DataFile]


def _pieces(snapshot: Snapshot, policy: MaintenancePolicy, busy: Collection[str]) -> Iterator[list[Commit]]:
    """Stretches of neighbouring commits that may be merged, each small enough for memory and for one job."""
    commits: dict[int, list[DataFile]] = {}
    for file in sorted(snapshot.changes, key=lambda file: (file.seq, file.op, file.path)):
        commits.setdefault(file.seq, []).append(file)
    piece: list[Commit] = []
    rows = files = 0
    for commit in commits.values():
        fits = all(
            file.origin in MERGEABLE_ORIGINS
            and file.path not in busy
            and file.size_bytes <= policy.minor_bytes_max
            and 0 <= file.rows <= policy.minor_rows_max
            for file in commit
        )
        more = sum(file.rows for file in commit)
        if piece and (not fits or rows + more > policy.minor_rows_max or files + len(commit) > BATCH_FILES_MAX):
            yield piece
            piece, rows, files = [], 0, 0
        if fits:
            piece.append(commit)
            rows, files = rows + more, files + len(commit)
    if piece:
        yield piece


def _even_runs(commits: Sequence[Commit], growth: int) -> Iterator[Sequence[Commit]]:
    """The longest runs that are `growth` times as large as their largest commit.

    A run that is too small for its largest commit is so wherever it is shortened around it: look left and right.
    """
    waiting = [commits]
    while waiting:
        run = waiting.pop()
        if not run:
            continue
        sizes = [bytes_of(commit) for commit in run]
        largest = max(range(len(run)), key=lambda number: sizes[number])
        if growth * sizes[largest] <= sum(sizes):
            yield run
        else:
            waiting += [run[largest + 1 :], run[:largest]]


# -- debt


def debt(snapshot: Snapshot, policy: MaintenancePolicy, now_ms: int, busy: Collection[str] = frozenset()) -> Debt:
    origins: dict[str, FileCount] = {}
    for file in snapshot.base:
        count = origins.get(file.origin, FileCount())
        origins[file.origin] = FileCount(count.files + 1, count.bytes + file.size_bytes)
    compact = compactions(snapshot, policy, now_ms, busy)
    work = [fold_due(snapshot, policy, now_ms), minor_due(snapshot, policy, busy), *compact]
    return Debt(
        origins=dict(sorted(origins.items())),
        pending_files=len(snapshot.changes),
        pending_rows=_rows(snapshot.changes, row_bytes(snapshot.changes)),
        pending_bytes=snapshot.pending_bytes,
        read_overhead=read_overhead(snapshot),
        waiting=FileCount(sum(len(plan.files) for plan in compact), sum(plan.bytes_in for plan in compact)),
        due=tuple(dict.fromkeys(plan.why for plan in work if plan is not None)),
    )


def _rows(files: Sequence[DataFile], bytes_per_row: float) -> int:
    return sum(estimated_rows(file, bytes_per_row) for file in files)
