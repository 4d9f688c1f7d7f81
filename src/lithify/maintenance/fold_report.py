"""What a fold would do, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lithify.core.html import Shown


@dataclass(frozen=True)
class FoldPlan(Shown):
    """What a fold would do now, without doing it."""

    table: str
    watermark: int
    seq: int
    change_files: int
    change_rows: int
    files_linked: int
    files_rewritten: int
    files_kept: int
    bytes_read: int
    bytes_written: int
    engine: str
    why: str
    gain: str


@dataclass(frozen=True)
class FoldReport(Shown):
    """What a fold did. Row counts are exact; bytes count data files. `change_files` were merged into base, and
    `tombstones` of their rows say that a row is deleted. `problem`: a change that nothing folds past.
    """

    table: str
    seq: int
    base_rows: int = 0
    change_rows: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    final_rows: int = 0
    files_read: int = 0
    files_written: int = 0
    files_linked: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    engine: str = "none"
    problem: str = ""
    change_files: int = 0
    tombstones: int = 0


def added(first: FoldReport, second: FoldReport) -> FoldReport:
    return replace(
        second,
        base_rows=first.base_rows,
        **{
            name: getattr(first, name) + getattr(second, name)
            for name in (
                "change_rows",
                "inserted",
                "updated",
                "deleted",
                "files_read",
                "files_written",
                "files_linked",
                "bytes_read",
                "bytes_written",
                "change_files",
                "tombstones",
            )
        },
    )
