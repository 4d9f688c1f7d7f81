"""What the peers took, side by side: a table for the terminal and for docs/benchmarks.md, and who leads where."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.drivers import PEERS, Peer
from benchmarks.peers.work import STEPS

OURS = "lithify"
Results = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    wall_s: float
    cpu_s: float


def cells(result: Mapping[str, Any]) -> dict[str, Cell]:
    """The median of each step by the clock, and its mean processor time: the kernel counts that in hundredths."""
    return {
        step: Cell(statistics.median(one["wall_s"] for one in took), statistics.fmean(one["cpu_s"] for one in took))
        for step, took in result["took"].items()
    }


def sections(results: Results) -> list[tuple[str, list[Peer]]]:
    """Peers that do the same kind of work: in one process, and on Spark."""
    there = [peer for peer in PEERS if peer.name in results]
    return [
        (title, chosen)
        for title, spark in (("In one process", False), ("On Spark", True))
        if (chosen := [peer for peer in there if peer.spark is spark])
    ]


def shown(seconds: float) -> str:
    return (
        f"{seconds * 1000:.1f} ms"
        if seconds < 0.1
        else f"{seconds * 1000:.0f} ms"
        if seconds < 1
        else f"{seconds:.2f} s"
    )


def markdown(results: Results, missing: Mapping[str, str]) -> str:
    parts = []
    for title, peers in sections(results):
        parts += [f"### {title}", "", *_table(results, peers), ""]
    parts += [f"Not measured: {name} ({why})." for name, why in missing.items()]
    return "\n".join(parts).rstrip() + "\n"


def _table(results: Results, peers: Sequence[Peer]) -> list[str]:
    by_peer = {peer.name: cells(results[peer.name]) for peer in peers}
    headings = [_heading(peer, results[peer.name]) for peer in peers]
    lines = [
        f"| step | {' | '.join(headings)} | Lithify against the best other |",
        f"|---|{'---|' * (len(peers) + 1)}",
    ]
    for step, what in STEPS.items():
        found = {name: cell[step] for name, cell in by_peer.items() if step in cell}
        row = [_shown(found.get(peer.name)) for peer in peers]
        lines.append(f"| {what} | {' | '.join(row)} | {_standing(found)} |")
    for when, what in (("changed", "files, MB before compaction"), ("compacted", "after it, with what it replaced")):
        row = [
            f"{results[peer.name]['files'].get(when, 0):,}, {results[peer.name]['bytes'].get(when, 0) / 1e6:,.0f}"
            for peer in peers
        ]
        lines.append(f"| {what} | {' | '.join(row)} | |")
    return lines


def _heading(peer: Peer, result: Mapping[str, Any]) -> str:
    return f"{peer.title}{' (wrong answers)' if result['wrong'] else ''}"


def _shown(cell: Cell | None) -> str:
    return "–" if cell is None else f"{shown(cell.wall_s)} ({shown(cell.cpu_s)})"


def _standing(found: Mapping[str, Cell]) -> str:
    ours = [cell.wall_s for name, cell in found.items() if name.startswith(OURS)]
    others = [cell.wall_s for name, cell in found.items() if not name.startswith(OURS)]
    if not ours or not others:
        return ""
    ratio = min(others) / ours[0]
    return f"{ratio:.1f}× faster" if ratio >= 1 else f"**{1 / ratio:.1f}× slower**"
