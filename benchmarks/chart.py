"""Draw docs/pictures/figures.svg from six rows of docs/benchmarks.md: `python -m benchmarks.chart`.

Times lie on a logarithmic axis, ours above what it is compared to. Two of the six are costs, not gains: a chart that
only shows where one wins says little. A test compares the picture with the page.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PICTURE = DOCS / "pictures" / "figures.svg"
# What the row says and what it compares with in docs/benchmarks.md, and what the chart and the README say.
CHOSEN = [
    ("upsert of 1,000 random keys into 10,000,000 rows", "deltalake merge", "upsert of 1,000 rows into 10 million"),
    ("stream of 100 × 1,000 upserts", "deltalake merge", "stream of 100 × 1,000 upserts"),
    ("point query over 5,000 files", "DuckDB", "point query over 5,000 files"),
    ("fold of 100,000 random changes into", "Spark by hand", "fold of 100,000 changes into 10 million"),
    ("fresh aggregate, serving, integer key, two", "the same folded", "aggregate, 100,000 changes pending"),
    ("bulk upsert of 10,000,000 rows sorted", "Spark writes", "bulk load of 10 million rows"),
]
WIDTH, LEFT, RIGHT, TOP, ROW = 880, 318, 150, 58, 54
LOW_S, HIGH_S = 0.001, 100.0
STYLE = """
    text { font: 14px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933 }
    .small { font-size: 12px; fill: #52606d } .ratio { font-weight: 600 }
    .card { fill: #fbfaf7; stroke: #dcd7cc } .grid { stroke: #e4dfd4 } .ours { fill: #2a8c7c } .theirs { fill: #b5bec8 }
    @media (prefers-color-scheme: dark) {
      text { fill: #e4e7eb } .small { fill: #a3b0bd }
      .card { fill: #161b22; stroke: #30363d } .grid { stroke: #2b323b }
      .ours { fill: #3fb3a0 } .theirs { fill: #57606a }
    }
"""


@dataclass(frozen=True)
class Row:
    label: str
    ours: str
    against: str
    theirs: str
    ratio: float

    @property
    def gain(self) -> str:
        """How many times faster, or slower."""
        shown = f"{self.ratio:.0f}" if self.ratio >= 10 else f"{self.ratio:.1f}"
        return f"{shown}× {'faster' if seconds(self.ours) < seconds(self.theirs) else 'slower'}"


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) / (1000 if unit == "ms" else 1)


def rows(page: str) -> list[Row]:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    found = []
    for what, against, label in CHOSEN:
        ((_, ours, other, theirs, ratio, *_),) = [
            row for row in cells if row[0].startswith(what) and re.match(rf"{re.escape(against)}\b", row[2])
        ]
        found.append(Row(label, ours, other, theirs, float(ratio.rstrip("×"))))
    return found


def drawn(chosen: list[Row]) -> str:
    height = TOP + ROW * len(chosen) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Six figures">',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="12"/>',
        '  <rect class="ours" x="28" y="22" width="14" height="12" rx="2"/><text x="50" y="33">Lithify</text>',
        '  <rect class="theirs" x="128" y="22" width="14" height="12" rx="2"/>'
        '<text x="150" y="33">what it is compared with; a logarithmic axis</text>',
    ]
    for power, label in enumerate(("1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s")):
        x = _x(LOW_S * 10**power)
        parts.append(f'  <line class="grid" x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{height - 30}"/>')
        parts.append(f'  <text class="small" x="{x}" y="{height - 13}" text-anchor="middle">{label}</text>')
    for number, row in enumerate(chosen):
        y = TOP + ROW * number
        parts.append(f'  <text x="{LEFT - 14}" y="{y + 14}" text-anchor="end">{escape(row.label)}</text>')
        parts.append(
            f'  <text class="small" x="{LEFT - 14}" y="{y + 31}" text-anchor="end">{escape(row.against)}</text>'
        )
        for kind, text, top in (("ours", row.ours, y + 2), ("theirs", row.theirs, y + 20)):
            end = _x(seconds(text))
            parts.append(f'  <rect class="{kind}" x="{LEFT}" y="{top}" width="{end - LEFT}" height="15" rx="2"/>')
            parts.append(f'  <text class="small" x="{end + 6}" y="{top + 12}">{escape(text)}</text>')
        parts.append(f'  <text class="ratio" x="{WIDTH - 24}" y="{y + 22}" text-anchor="end">{row.gain}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _x(value_s: float) -> int:
    share = math.log10(value_s / LOW_S) / math.log10(HIGH_S / LOW_S)
    return round(LEFT + share * (WIDTH - LEFT - RIGHT))


if __name__ == "__main__":
    PICTURE.write_text(drawn(rows((DOCS / "benchmarks.md").read_text())))
