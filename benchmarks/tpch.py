"""TPC-H by `lake.sql`, nothing kept in memory, against bare DataFusion on the very files of the folded tables.

Processor time, best of some rounds in turns, and the geometric mean over the queries. Then one row in a hundred of the
two large tables is written again as it is, so that there are pending changes and the answers stay. Every answer is
compared with DuckDB's. Where PyPI does not give its generator, the suite says so and measures nothing.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sqlglot
from datafusion import SessionContext
from sqlglot import exp

from benchmarks.data import file_paths
from benchmarks.peers.environments import NotToBeHad, python_of
from benchmarks.report import Report, cpu_of, rounds
from benchmarks.tpch_data import TABLES
from lithify import Lake

NEEDS = ("duckdb==1.5.5", "duckdb-extension-tpch==1.5.5")
ENVIRONMENTS = Path(__file__).parents[1] / "build" / "peers"
KEYS = {
    "customer": "c_custkey",
    "lineitem": ["l_orderkey", "l_linenumber"],
    "nation": "n_nationkey",
    "orders": "o_orderkey",
    "part": "p_partkey",
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "region": "r_regionkey",
    "supplier": "s_suppkey",
}
CHANGED = ("lineitem", "orders")
CHANGED_SHARE, CHANGED_BATCHES = 100, 10
SCALE, ROUNDS = 0.1, 5
# Engines divide and average decimals with another number of digits.
TOLERANCE = 1e-4


def run(lake: Lake, report: Report, scale: float) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tpch-", dir=Path(lake.path).parent))
    try:
        size = SCALE * scale
        report.say(f"TPC-H, scale factor {size:g}")
        try:
            python = python_of(NEEDS, ENVIRONMENTS)
        except NotToBeHad as reason:
            report.say(f"  not measured: {reason}")
            return
        subprocess.run([python, Path(__file__).with_name("tpch_data.py"), folder, str(size)], check=True)
        said = json.loads((folder / "queries.json").read_text())
        measure(lake, report, folder, said["queries"], said["answers"], rounds(ROUNDS, scale, 2))
    finally:
        shutil.rmtree(folder)


def measure(
    lake: Lake, report: Report, folder: Path, queries: Sequence[str], answers: Sequence[list[Any]], times: int
) -> None:
    tables = {name: pq.read_table(folder / f"{name}.parquet") for name in TABLES}
    bare = SessionContext()
    for name, rows in tables.items():
        table = lake.create_table(f"tpch.{name}", rows.schema, key=KEYS[name])
        table.upsert(rows)
        table.fold()
        (folder / name).mkdir()
        for number, path in enumerate(file_paths(table)):
            os.link(path, folder / name / f"{number}.parquet")
        bare.register_parquet(name, str(folder / name))
    ours, theirs = [in_namespace(query, "tpch") for query in queries], [in_namespace(query, None) for query in queries]

    def compared(state: str, limit: float) -> None:
        found = []
        for number, (query, alone, answer) in enumerate(zip(ours, theirs, answers, strict=True), 1):
            check(number, lake.sql(query), answer)
            found.append(cpu_of(times, lambda q=query: lake.sql(q), lambda q=alone: bare.sql(q).to_arrow_table()))  # type: ignore[misc]
        ratios = [mine / other for mine, other in found]
        worst = max(range(len(ratios)), key=ratios.__getitem__)
        mine, other = (sum(pair[side] for pair in found) for side in (0, 1))
        report.say(f"  {state}: in all {mine:.2f} s against {other:.2f} s; worst q{worst + 1}, {ratios[worst]:.2f}×")
        mean = statistics.geometric_mean(ratios)
        report.number(
            f"TPC-H, {len(queries)} queries, {state}, processor time of bare DataFusion, geometric mean",
            f"{mean:.2f}×",
            f"≤ {limit:g}×",
            mean <= limit,
        )

    compared("folded", 1.1)
    for name in CHANGED:
        rows = tables[name]
        count = max(CHANGED_BATCHES, rows.num_rows // CHANGED_SHARE)
        chosen = np.random.default_rng(11).permutation(rows.num_rows)[:count]
        for part in np.array_split(chosen, CHANGED_BATCHES):
            lake.table(f"tpch.{name}").upsert(rows.take(pa.array(part)))
    compared("pending", 1.3)
    for name in TABLES:
        lake.drop_table(f"tpch.{name}")


def in_namespace(query: str, namespace: str | None) -> str:
    """In DataFusion's words."""
    tree = sqlglot.parse_one(query.rstrip().rstrip(";"), dialect="duckdb")
    for table in tree.find_all(exp.Table):
        if table.name in TABLES:
            table.set("db", exp.to_identifier(namespace) if namespace else None)
    return str(tree.sql(dialect="postgres"))


def check(number: int, found: pa.Table, answer: Sequence[Sequence[Any]]) -> None:
    mine, theirs = (sorted(map(_plain, rows), key=repr) for rows in (_rows(found), answer))
    if len(mine) != len(theirs) or not all(map(_alike, mine, theirs)):
        raise AssertionError(f"q{number}: {mine[:3]} …, and by DuckDB {theirs[:3]} …")


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*[column.to_pylist() for column in table.columns], strict=True))


def _plain(row: Sequence[Any]) -> tuple[Any, ...]:
    """Texts before numbers, so that rows whose numbers differ in their last digits are sorted alike."""
    plain = [_number(value) for value in row]
    return (*[v for v in plain if not isinstance(v, float)], *[v for v in plain if isinstance(v, float)])


def _number(value: Any) -> Any:
    if isinstance(value, Decimal | int | float):
        return float(value)
    try:
        return float(str(value))
    except ValueError:
        return str(value).removesuffix(" 00:00:00")


def _alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=1e-2) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(one, other, strict=True)
    )
