"""SQL that means no good: it looks for files, changes things, never ends, or takes all memory.

`run_all` asks all of it of one lake in one process, and tells what came of each.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from lithify import Lake
from lithify.errors import LithifyError
from lithify.settings import load_settings

SECRET = "root:x:0:0"
LONG = 5_000


def _nested(inner: str, around: str, times: int) -> str:
    before, after = around.split("…")
    return before * times + inner + after * times


REFUSED = {
    "file": "select * from '{secret}'",
    "file as a name": 'select * from "{secret}"',
    "file address": "select * from 'file://{secret}'",
    "web address": "select * from 'http://127.0.0.1:1/x.parquet'",
    "bucket": "select * from 's3://bucket/x.parquet'",
    "reading function": "select * from read_csv('{secret}')",
    "parquet function": "select * from read_parquet('{secret}')",
    "glob": "select * from glob('/*')",
    "where files are": "select input_file_name() from shop.orders",
    "external table": "create external table x stored as csv location '{secret}'",
    "two statements": "select 1; drop table shop.orders",
    "second in a comment's shadow": "select 1 /* ; */ ; delete from shop.orders",
    "ddl": "drop table shop.orders",
    "ddl in a with": "with x as (drop table shop.orders) select 1",
    "dml": "insert into shop.orders values (1, 1, 'x')",
    "dml in a with": "with x as (delete from shop.orders returning *) select * from x",
    "set": "set datafusion.execution.batch_size = 1",
    "copy": "copy (select 1) to '{written}'",
    "select into": "select 1 into shop.stolen",
    "explain": "explain analyze select * from shop.orders",
    "information schema": "select * from information_schema.tables",
    "engine's catalog": "select * from datafusion.public.t",
    "prepare": "prepare p as select 1",
    "call": "call x()",
    "parentheses": "select " + _nested("1", "(…)", LONG),
    "functions": "select " + _nested("1", "abs(…)", LONG),
    "subqueries": _nested("select 1", "select * from (…)", LONG),
    "scalar subqueries": _nested("select 1", "select (…)", LONG),
    "brackets": "select " + _nested("1", "[…]", LONG),
    "signs": "select " + "- " * LONG + "1",
    "too long": "select '" + "x" * 300_000 + "'",
    "nothing": "",
    "zero byte": "select 1 \0 from shop.orders",
    "open string": "select 'abc",
    "open comment": "select 1 /* abc",
}
STOPPED = {
    "cross join": "select sum(a.id * b.id) from shop.orders a, shop.orders b, shop.orders c",
    "join of one key": "select count(*) from shop.orders a join shop.orders b on a.side = b.side join shop.orders c "
    "on c.side = a.side",
    "inequality": "select count(*) from shop.orders a join shop.orders b on a.id + b.id > 0 join shop.orders c on "
    "a.id < c.id",
    "exists": "select count(*) from shop.orders a, shop.orders b where exists (select 1 from shop.orders c where "
    "a.id + b.id + c.id < 0)",
    "endless rows": "select count(*) from range(1000000000000) where value % 7 = 3",
    "endless recursion": "with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r",
    "repeat": "select repeat('x', 2000000000)",
    "repeat of repeat": "select length(repeat(repeat(repeat('x', 10000), 10000), 10000))",
    "repeat by row": "select length(repeat(name, 100000000)) from shop.orders",
    "repeat in a table function": "select * from range(0, length(repeat('x', 2000000000)))",
    "padding": "select lpad('x', 2000000000), rpad('x', 2000000000)",
    "list of numbers": "select unnest(range(0, 10000000000))",
    "series": "select count(*) from (select unnest(generate_series(0, 10000000)) from shop.orders)",
    "list of one value": "select array_repeat('x', 2000000000)",
    "resized list": "select array_resize([1], 2000000000, 1)",
    "doubling": "with c0 as (select 'xxxxxxxxxx' as x), "
    + ", ".join(f"c{n} as (select concat(x, x) as x from c{n - 1})" for n in range(1, 34))
    + " select length(x) from c33",
    "doubling by hand": "select " + _nested("name", "encode(…, 'hex')", 45) + " from shop.orders",
    "wide type": "select arrow_cast(null, 'FixedSizeList(2000000000, Int64)')",
    "long text on every row": "select length('" + "x" * 200_000 + "' || name) from shop.orders a, range(100000)",
    "doubling tables": "with c0 as (select 1 x), "
    + ", ".join(f"c{n} as (select a.x from c{n - 1} a, c{n - 1} b)" for n in range(1, 30))
    + " select count(*) from c29",
    "replacing": "select length(replace(replace(repeat('a', 9999), 'a', repeat('b', 9999)), 'b', repeat('c', 9999)))",
    "long distance": "select levenshtein(repeat('ab', 300000), repeat('ba', 300000))",
    "gathered text": "select length(string_agg(repeat(a.name, 100), ',')) from shop.orders a, shop.orders b",
    "gathered rows": "select array_length(array_agg(a.name || b.name)) from shop.orders a, shop.orders b",
    "all grouping sets": "select 1 from shop.orders group by cube (" + ", ".join(f"id + {n}" for n in range(25)) + ")",
    "sum": "select " + "+".join(["id"] * LONG) + " from shop.orders",
    "unions": " union all ".join(["select 1"] * LONG),
    "conditions": "select * from shop.orders where " + " or ".join(f"id = {n} and side = {n}" for n in range(LONG)),
    "joins": "select count(*) from shop.orders o0 "
    + " ".join(f"join shop.orders o{n} on o{n}.side = o0.side" for n in range(1, 500)),
    "casts": "select 1" + "::int" * 20_000,
}
# Those that only time stops need little of it; what is refused has all it takes on a busy machine.
ENDLESS = {
    *("cross join", "inequality", "exists", "endless rows", "endless recursion", "repeat of repeat", "series"),
    *("doubling by hand", "doubling tables", "long distance", "all grouping sets", "sum", "conditions", "joins"),
}


def seconds_for(name: str) -> float:
    return 60 if name in REFUSED else 0.5 if name in ENDLESS else 2


def run_all(folder: str) -> None:
    """Prints what came of each, as JSON: the code of an error, or the rows."""
    here = Path(folder)
    (here / "secret").write_text(SECRET)
    settings = load_settings(query_memory_bytes_max=2**28, query_wait_s_max=600, queries_max=2)
    outcomes: dict[str, dict[str, object]] = {}
    with Lake(here / "lake", settings=settings) as lake:
        numbers = list(range(20_000))
        columns = {"id": numbers, "side": [n % 2 for n in numbers], "name": [f"name {n}" for n in numbers]}
        lake.create_table("shop.orders", pa.table(columns).schema, key="id").append(pa.table(columns))

        def ask(name: str, query: str) -> None:
            text = query.replace("{secret}", str(here / "secret")).replace("{written}", str(here / "written"))
            try:
                answer = lake.query(text, id=name, timeout_s=seconds_for(name))
                outcomes[name] = {"rows": str(answer.rows.to_pylist())[:200], "seconds": answer.seconds}
            except LithifyError as error:
                outcomes[name] = {"error": error.code, "message": str(error)[:200], **error.details}

        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(ask, name, query) for name, query in {**REFUSED, **STOPPED}.items()]:
                future.result()
        left = lake.sql("select count(*) as n from shop.orders").to_pylist()[0]["n"]
    json.dump({"outcomes": outcomes, "rows": left, "files": sorted(path.name for path in here.iterdir())}, sys.stdout)


if __name__ == "__main__":
    run_all(sys.argv[1])
