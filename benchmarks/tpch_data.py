"""`python benchmarks/tpch_data.py FOLDER SCALE`: the tables of TPC-H, its 22 queries, and DuckDB's answers to them.

Runs in an environment of its own: the generator is an extension of DuckDB that comes for one version of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


def main(folder: Path, scale: float) -> None:
    import duckdb_extension_tpch  # who only asks for the names of the tables does without

    (extension,) = Path(duckdb_extension_tpch.__path__[0]).rglob("tpch.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute(f"CALL dbgen(sf = {scale})")
        for table in TABLES:
            connection.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
        queries = [text for _, text in connection.execute("FROM tpch_queries()").fetchall()]
        answers = [connection.execute(text).fetchall() for text in queries]
    (folder / "queries.json").write_text(json.dumps({"queries": queries, "answers": answers}, default=str))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
