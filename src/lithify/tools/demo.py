"""The guided demo: a shop's orders loaded in bulk, changed row by row, read fresh on both engines, folded, and read
again.

Every claim is checked while it runs: both engines, the number of rows that the generator expects, the state before
the stream, and a process that knows nothing of Lithify must agree, or the demo fails.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from lithify.core.names import CONTROL_FOLDER
from lithify.errors import ComputeFailed, InvalidRequest
from lithify.files.addresses import is_remote
from lithify.files.open_storage import storage_of
from lithify.files.user_files import named_place
from lithify.lake.internals import internals
from lithify.lake.lake import Lake
from lithify.lake.table import Table
from lithify.settings import Settings
from lithify.tools import demo_data

ROWS_DEFAULT = 1_000_000
ROWS_MIN, ROWS_MAX = 1_000, 100_000_000
BATCHES, BATCH_ROWS = 50, 1_000
MARKER = "demo.json"
ORDERS, CUSTOMERS = "shop.orders", "shop.customers"
TABLES = ("orders", "customers", "orders_clean", "daily_revenue")  # of the namespace shop

QUERY = """
SELECT country, count(*) AS orders, sum(amount) AS revenue
FROM {orders} WHERE status <> 'returned' GROUP BY country ORDER BY revenue DESC, country
""".strip()
TOTALS = (
    "SELECT count(*) AS orders, sum(amount) AS revenue, sum(items) AS items, min(id) AS first, max(id) AS "
    "last FROM {orders}"
)

ONE_ORDER = "SELECT * FROM {orders} WHERE id = {id}"

# It leaves without the interpreter's own ending: pyarrow's threads may still be giving back files of deltalake's, which
# are Python objects, and that aborts a process that ends.
PLAIN_READER = """
import json, os, sys
from deltalake import DeltaTable
import pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset as ds
table = DeltaTable(sys.argv[1], storage_options=json.loads(sys.argv[2]))
rows = pa.table(table.to_pyarrow_table(columns=["id", "amount"]))
print(json.dumps({"version": table.version(), "files": len(table.file_uris()), "rows": rows.num_rows,
                  "revenue": str(pc.sum(rows["amount"]).as_py()), "lithify": "lithify" in sys.modules}), flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Step:
    """One thing that happened: what, how long it took, and what came of it."""

    chapter: str
    title: str
    seconds: float
    result: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The same question, asked of one engine in one state of the table."""

    pending_rows: int
    engine: str
    seconds: float
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class DemoReport:
    lake: str
    rows: int
    steps: list[Step]
    answers: list[Answer]
    seconds: float
    try_next: list[str]


class Narrator:
    """Told what begins and what has ended. The base class keeps quiet."""

    def begins(self, title: str) -> None: ...

    def ended(self, step: Step) -> None: ...


@dataclass
class _Note:
    result: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: float | None = None

    def say(self, result: str, seconds: float | None = None, **facts: Any) -> None:
        self.result, self.facts = result, facts
        if seconds is not None:
            self.seconds = seconds


class Demo:
    def __init__(
        self, folder: PurePath, settings: Settings, rows: int = ROWS_DEFAULT, narrator: Narrator | None = None
    ) -> None:
        if not ROWS_MIN <= rows <= ROWS_MAX:
            raise InvalidRequest(f"--rows {rows}: the demo takes {ROWS_MIN:,} to {ROWS_MAX:,} orders")
        self._folder, self._settings, self._rows = named_place(folder), settings, rows
        self._narrator = narrator or Narrator()
        self._steps: list[Step] = []

    def run(self) -> DemoReport:
        started = time.perf_counter()
        prepare_folder(self._folder)
        # Without a cache: a question that is asked again would be answered from memory, and its time say nothing.
        with Lake(self._folder, settings=self._settings.model_copy(update={"cache_bytes_max": 0})) as lake:
            mark(lake, self._rows)
            orders = self._load(lake)
            loaded_seq = orders.snapshot().seq
            loaded = self._totals(lake)
            self._pipeline(lake, "raw orders → cleaned → daily revenue")
            expected = self._stream(orders)
            self._pipeline(lake, "the same after the stream")
            fresh = self._ask(lake, orders, "Read fresh", expected)
            self._point_reads(orders)
            self._travel(lake, loaded_seq, loaded)
            self._fold(orders, expected)
            folded = self._ask(lake, orders, "Read again", expected)
            self._check(fresh[0].rows == folded[0].rows, "the fold changed the answer")
            self._explain(lake)
            self._plain_delta(lake, orders)
        seconds = time.perf_counter() - started
        return DemoReport(
            str(self._folder), self._rows, self._steps, [*fresh, *folded], seconds, try_next(self._folder, ORDERS)
        )

    # -- the chapters

    def _load(self, lake: Lake) -> Table:
        chapter, known = "Load", demo_data.customer_count(self._rows)
        with self._step(chapter, "start Spark") as note:
            spark = lake.spark
            note.say(f"Spark {spark.version}", version=spark.version)
        with self._step(chapter, "create two tables") as note:
            customers = lake.create_table(CUSTOMERS, demo_data.CUSTOMERS, key="id")
            orders = lake.create_table(ORDERS, demo_data.ORDERS, key="id", time="ordered_at")
            note.say("keyed by id; orders by day")
        for table, frame in (
            (customers, demo_data.customers(spark, known)),
            (orders, demo_data.orders(spark, self._rows, known)),
        ):
            with self._step(chapter, f"load {table.name} through Spark") as note:
                commit = table.upsert(frame)
                note.say(f"{commit.rows:,} rows, one commit", rows=commit.rows)
        with self._step(chapter, "first fold of both") as note:
            reports = [table.fold() for table in (customers, orders)]
            linked = sum(report.files_linked for report in reports)
            written = sum(report.bytes_written for report in reports)
            files = sum(table.stats().base_files for table in (customers, orders))
            result = f"{files} files in base, {linked} of them linked, {written / 2**20:.1f} MiB written"
            note.say(result, files=files, files_linked=linked, bytes_written=written)
        return orders

    def _stream(self, orders: Table) -> int:
        stream = demo_data.Stream(
            self._rows, demo_data.customer_count(self._rows), BATCHES, min(BATCH_ROWS, self._rows // 20)
        )
        upserts, deletes, upserted, deleted = [], [], 0, 0
        with self._step("Change", f"{BATCHES} batches, row by row") as note:
            for batch in stream:
                begun = time.perf_counter()
                upserted += orders.upsert(batch.upserts).upserted
                between = time.perf_counter()
                deleted += orders.delete(batch.deletes, actor="privacy-desk", reason="erasure request").deleted
                upserts.append((between - begun) * 1000)
                deletes.append((time.perf_counter() - between) * 1000)
            note.say(
                f"{upserted:,} upserts, {deleted:,} deletes",
                seconds=(sum(upserts) + sum(deletes)) / 1000,
                upserted=upserted,
                deleted=deleted,
            )
        for what, latencies, size in (
            ("upsert", upserts, upserted // BATCHES),
            ("delete", deletes, deleted // BATCHES),
        ):
            p50, p99 = statistics.median(latencies), _p99(latencies)
            title = f"one {what} of {size:,} rows, durable"
            facts = {"p50_ms": round(p50, 2), "p99_ms": round(p99, 2)}
            lasts = "in the bucket" if is_remote(self._folder) else "fsynced"
            self._add(Step("Change", title, p50 / 1000, f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {lasts}", facts))
        return stream.expected

    def _pipeline(self, lake: Lake, title: str) -> None:
        """Bring the daily revenue up to date; it must be what the orders themselves say."""
        with self._step("Pipeline", title) as note:
            clean, daily = lake.pipeline("sales", demo_data.PIPELINE).run().steps
            revenue = lake.sql(demo_data.DAILY_REVENUE_TABLE).to_pylist()
            self._check(revenue == lake.sql(demo_data.DAILY_REVENUE).to_pylist(), "the daily revenue is another one")
            did = f"{clean.read:,} orders read, {clean.written:,} written, {clean.deleted:,} deleted"
            note.say(f"{did}; {daily.written} days", seconds=clean.seconds + daily.seconds, days=len(revenue))

    def _ask(self, lake: Lake, orders: Table, chapter: str, expected: int) -> list[Answer]:
        """The same question on both engines, with equal answers. Timed is the better of two, after a first asking."""
        query, pending = QUERY.format(orders=ORDERS), orders.stats().pending_rows
        state = f"{pending:,} changes pending" if pending else "nothing pending"

        def ask_sql() -> list[dict[str, Any]]:
            return list(lake.sql(query).to_pylist())

        def ask_spark() -> list[dict[str, Any]]:
            orders.to_spark().createOrReplaceTempView("orders")
            return [row.asDict() for row in lake.spark.sql(QUERY.format(orders="orders")).collect()]

        answers = []
        for engine, ask in (("SQL", ask_sql), ("Spark", ask_spark)):
            with self._step(chapter, f"revenue by country, {engine}") as note:
                rows = ask()
                seconds = min(_seconds(ask) for _ in range(2))
                answers.append(Answer(pending, engine, seconds, rows))
                self._check(rows == answers[0].rows, "SQL and Spark gave different answers")
                note.say(state if engine == "SQL" else "the same answer, to the cent", seconds=seconds)
        count = self._totals(lake)["orders"]
        self._check(count == expected, f"{count:,} orders instead of {expected:,}")
        return answers

    def _point_reads(self, orders: Table) -> None:
        gone = next(
            row["id"]
            for row in reversed(orders.changes(since=orders.stats().watermark).to_pylist())
            if row["_op"] == "delete"
        )
        with self._step("Read fresh", "one order by its key") as note:
            found = orders.get(self._rows // 2)
            seconds = _seconds(lambda: orders.get(self._rows // 2))
            self._check(
                found is not None and orders.get(gone) is None, "a deleted order is still there, or a live one is not"
            )
            note.say(f"order {self._rows // 2:,} is there, deleted order {gone:,} is not", seconds=seconds)

    def _travel(self, lake: Lake, loaded_seq: int, loaded: dict[str, Any]) -> None:
        with self._step("Travel", f"back to seq {loaded_seq}, before the stream") as note:
            before = self._totals(lake, as_of=loaded_seq)
            self._check(before == loaded, "the past has changed")
            note.say(f"{before['orders']:,} orders, {before['revenue']:,} € as loaded")

    def _fold(self, orders: Table, expected: int) -> None:
        before = orders.stats()
        with self._step("Fold", "changes into base") as note:
            report = orders.fold()
            self._check(
                report.final_rows == expected, f"the fold left {report.final_rows:,} rows instead of {expected:,}"
            )
            rewritten = report.files_read - before.pending_files
            counts = f"+{report.inserted:,} ~{report.updated:,} -{report.deleted:,}"
            note.say(
                f"{counts} rows; {rewritten} of {before.base_files} files rewritten",
                inserted=report.inserted,
                updated=report.updated,
                deleted=report.deleted,
            )

    def _explain(self, lake: Lake) -> None:
        """One order of a table by day: the index rules out all other files before one is opened."""
        query = ONE_ORDER.format(orders=ORDERS, id=self._rows // 2)
        with self._step("Explain", f"what reading order {self._rows // 2:,} takes") as note:
            (found,) = lake.explain(query)
            self._check(found.files_read < max(found.files_total, 2), "nothing was ruled out for a query by key")
            files = f"{found.files_read} of {found.files_total} files"
            groups = f"{found.groups_read} of {found.groups_total} row groups"
            size = f"{found.bytes_read / 2**10:,.0f} of {found.bytes_total / 2**10:,.0f} KiB"
            note.say(f"{files}, {groups}, {size}", files_read=found.files_read, files_total=found.files_total)

    def _plain_delta(self, lake: Lake, orders: Table) -> None:
        totals = self._totals(lake)
        with self._step("Open", "base with plain deltalake, no Lithify") as note:
            options = json.dumps(_told_to_deltalake(self._folder))
            command = [sys.executable, "-c", PLAIN_READER, str(orders.base_path), options]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            self._check(done.returncode == 0, f"a plain Delta reader failed: {done.stderr.strip().splitlines()[-1:]}")
            plain = json.loads(done.stdout)
            self._check(
                plain["rows"] == totals["orders"] and plain["revenue"] == str(totals["revenue"]),
                "a plain Delta reader sees other rows",
            )
            note.say(f"{plain['rows']:,} rows, version {plain['version']}: the same", **plain)

    # -- keeping the record

    def _totals(self, lake: Lake, as_of: int | None = None) -> dict[str, Any]:
        return dict(lake.sql(TOTALS.format(orders=ORDERS), as_of=as_of).to_pylist()[0])

    @contextmanager
    def _step(self, chapter: str, title: str) -> Iterator[_Note]:
        self._narrator.begins(title)
        note, begun = _Note(), time.perf_counter()
        yield note
        elapsed = time.perf_counter() - begun
        self._add(Step(chapter, title, elapsed if note.seconds is None else note.seconds, note.result, note.facts))

    def _add(self, step: Step) -> None:
        self._steps.append(step)
        self._narrator.ended(step)

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            raise ComputeFailed(
                f"the demo found a mistake: {problem}; the lake in {self._folder} is kept as it is, please report it"
            )


def is_free(folder: PurePath) -> bool:
    """Whether nothing lies there."""
    store = storage_of(folder)
    return not store.exists(folder) or (store.is_folder(folder) and not store.names(folder))


def mark(lake: Lake, rows: int) -> None:
    """Say that it is of a demo, which the next may replace."""
    internals(lake).runtime.store.put(lake.path / CONTROL_FOLDER / MARKER, f"{json.dumps({'rows': rows})}\n".encode())


def prepare_folder(folder: PurePath) -> None:
    """Make way for a demo lake: replaces one that an earlier demo made, and nothing else."""
    if is_free(folder):
        return
    store = storage_of(folder)
    what = "address" if store.remote else "folder"
    if not store.is_folder(folder) or not {MARKER, "lake.json"} <= set(store.names(folder / CONTROL_FOLDER)):
        raise InvalidRequest(f"{folder} is there already and was not made by a demo: pass --lake with a new {what}")
    shop = folder / "shop"
    for entry in (*(folder / name for name in store.names(folder)), *(shop / name for name in store.names(shop))):
        if entry not in (folder / CONTROL_FOLDER, shop, *(shop / name for name in TABLES)):
            raise InvalidRequest(
                f"{entry} is not of the demo, and the demo would delete it: pass --lake with a new {what}"
            )
    store.delete_folder(folder)


def try_next(folder: PurePath, orders: str) -> list[str]:
    """Commands that work as printed, from the current folder."""
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    lake = f"lithify --lake {shlex.quote(str(shown))}"
    row = (
        '{"id": 42, "customer_id": 7, "ordered_at": "2026-10-01T00:01:48Z", "status": "paid", '
        '"items": 1, "amount": 19.90, "country": "DE", "note": null}'
    )
    return [
        f"{lake} tables",
        f"{lake} write {orders} --row '{row}'",
        f"{lake} get {orders} 42",
        f"{lake} delete {orders} 43 --reason 'customer asked'",
        f'{lake} sql "select status, count(*) as orders, sum(amount) as revenue from {orders} group by status"',
        f'{lake} explain "select * from {orders} where id = 42"',
        f"{lake} partitions {orders}",
        f"{lake} history {orders} --limit 5",
        f"{lake} pipeline history",
        f"{lake} fold {orders}",
    ]


def _told_to_deltalake(folder: PurePath) -> dict[str, str]:
    """It finds the keys of a bucket in the environment by itself; that http is meant it has to be told."""
    if not is_remote(folder):
        return {}
    from lithify.files.bucket.client import server

    return {"AWS_ALLOW_HTTP": "true"} if server().startswith("http://") else {}


def _seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def _p99(latencies: list[float]) -> float:
    return sorted(latencies)[max(0, round(0.99 * len(latencies)) - 1)]
