"""Timing and printing. Alternatives are timed in turns with what they are compared to, and the best of each counts."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_of(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The best time of each, measured in turns so that a noisy moment hits all alike."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for number, work in enumerate(works):
            times[number].append(timed(work))
    return [min(found) for found in times]


def cpu_of(times: int, *works: Callable[[], object]) -> list[float]:
    """The least processor time of each, in turns."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for number, work in enumerate(works):
            gc.collect()
            start = time.process_time()
            work()
            found[number].append(time.process_time() - start)
    return [min(each) for each in found]


def rounds(count: int, scale: float, least: int = 1) -> int:
    """How often to measure: as often as ever down to a tenth of the size. Below that nobody believes the figures."""
    return max(least, int(count * min(10 * scale, 1.0)))


def shown_time(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def shown_bytes(count: float) -> str:
    return f"{count / 1000:.1f} kB" if count < 1e6 else f"{count / 1e6:.2f} MB"


@dataclass
class Figure:
    what: str
    lithify: str
    against: str
    alternative: str
    ratio: float
    target: str
    holds: bool | None


@dataclass
class Report:
    figures: list[Figure] = field(default_factory=list)
    console: Console = field(default_factory=lambda: Console(width=160))

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{text}[/dim]", highlight=False)

    def faster(self, what: str, ours: float, against: str, theirs: float, at_least: float) -> None:
        self._add(
            Figure(
                what,
                shown_time(ours),
                against,
                shown_time(theirs),
                theirs / ours,
                f"≥ {at_least:g}×",
                theirs / ours >= at_least,
            )
        )

    def at_most(
        self,
        what: str,
        ours: float,
        against: str,
        theirs: float,
        limit: float,
        shown: Callable[[float], str] = shown_time,
    ) -> None:
        self._add(
            Figure(
                what,
                shown(ours),
                against,
                shown(theirs),
                ours / theirs,
                f"≤ {limit:g}×",
                ours / theirs <= limit,
            )
        )

    def beside(self, what: str, ours: float, against: str, theirs: float) -> None:
        self._add(Figure(what, shown_time(ours), against, shown_time(theirs), theirs / ours, "shown", None))

    def number(self, what: str, value: str, target: str, holds: bool) -> None:
        self._add(Figure(what, value, "", "", float("nan"), target, holds))

    def _add(self, figure: Figure) -> None:
        self.figures.append(figure)
        mark = {True: "holds", False: "MISSED", None: ""}[figure.holds]
        self.say(
            f"  {figure.what}: {figure.lithify} against {figure.alternative or '–'} ({figure.ratio:.2f}×, "
            f"{figure.target}) {mark}"
        )

    def print(self) -> None:
        table = Table(title="Lithify benchmarks", caption=machine(), title_justify="left", caption_justify="left")
        for column in ("what", "Lithify", "against", "alternative", "ratio", "target", ""):
            table.add_column(column, overflow="fold")
        for f in self.figures:
            mark = {True: "[green]holds[/green]", False: "[red]missed[/red]", None: ""}[f.holds]
            ratio = "" if f.ratio != f.ratio else f"{f.ratio:.2f}×"
            table.add_row(f.what, f.lithify, f.against, f.alternative, ratio, f.target, mark)
        self.console.print(table)

    def save(self, path: Path) -> None:
        document = {
            "machine": machine(),
            "figures": [asdict(f) | {"ratio": None if f.ratio != f.ratio else f.ratio} for f in self.figures],
        }
        path.write_text(json.dumps(document, indent=2))


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("deltalake", "pyspark", "datafusion", "pyarrow")
    )
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}, {versions}"
    )


def median(values: list[float]) -> float:
    return statistics.median(values)
