"""Queries of Flight: run in the thread of their call, watched beside it.

What ends one is what ends a query over HTTP: a client that is gone, a token that is no longer valid, a limit. An answer
is computed when it is asked for (`GetFlightInfo`), because its columns are told then, and kept until it is fetched, for
five minutes at most. It is whole or refused: what draws a picture of the rows would not notice that some are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from lithify.core.sql_text import all_tokens
from lithify.errors import Cancelled, Forbidden, InvalidRequest, LimitExceeded
from lithify.http.admission import CANCEL_AGAIN_S, LOOK_S, admitted
from lithify.http.auth import BAD_TOKEN, CHALLENGE, Caller
from lithify.http.errors import Refusal
from lithify.http.paging import Paged, PagedAnswers
from lithify.http.service import Service
from lithify.lake.internals import internals
from lithify.lake.queries import run_query
from lithify.sql.limits import Answer
from lithify.sql.statements.first_word import first_word, is_statement

READ_ONLY = "Flight SQL reads only: write through the HTTP API (POST /v1/query/execute), the command line or Python"
Result = TypeVar("Result")


@dataclass
class Queries:
    service: Service
    kept: PagedAnswers = field(init=False)

    def __post_init__(self) -> None:
        self.kept = PagedAnswers(bytes_max=self.service.settings.query_memory_bytes_max)

    def answered(self, caller: Caller, sql: str, is_gone: Callable[[], bool]) -> Paged:
        """Run it, and keep what it gives under an id of this token."""
        answer = self._run(caller, sql, is_gone)
        rows_max = self.service.settings.flight_rows_max
        if answer.cut:
            raise LimitExceeded(
                f"the answer has more than {rows_max:,} rows: ask for fewer, or raise the setting flight_rows_max",
                limit="rows",
            )
        if (size_bytes := answer.rows.nbytes) > (bytes_max := self.kept.bytes_max):
            raise LimitExceeded(
                f"the answer takes {size_bytes / 2**20:,.0f} MiB, more than {bytes_max / 2**20:,.0f} MiB: ask for "
                "fewer rows or columns, or raise the setting query_memory_bytes_max",
                limit="memory",
            )
        paged = Paged(answer.id.rpartition(":")[2], answer.rows, max(1, answer.rows.num_rows), {})
        self.kept.keep(caller.token.id, paged)
        return paged

    def columns_of(self, caller: Caller, sql: str, is_gone: Callable[[], bool]) -> pa.Schema:
        """The columns that the answer will have. Planned as a subquery of no rows; where that cannot be, because two
        columns have one name for example, one row is asked for.
        """
        if first_word(sql) in ("show", "describe", "desc"):
            return self._run(caller, sql, is_gone).rows.schema
        try:
            return self._run(caller, f"SELECT * FROM (\n{_bare(sql)}\n) LIMIT 0", is_gone, rows_max=1).rows.schema
        except InvalidRequest:
            return self._run(caller, sql, is_gone, rows_max=1).rows.schema

    def _run(self, caller: Caller, sql: str, is_gone: Callable[[], bool], rows_max: int | None = None) -> Answer:
        check_reads(sql)
        limits = self.service.settings
        self.service.response_memory.check()

        def run(id: str) -> Answer:
            return run_query(
                internals(self.service.lake),
                sql,
                id=id,
                timeout_s=limits.query_timeout_s,
                rows_max=rows_max or limits.flight_rows_max,
                may_read=caller.may_read,
                owner=caller.token.id,
            )

        return watched(self.service, caller, is_gone, run)


def watched(service: Service, caller: Caller, is_gone: Callable[[], bool], run: Callable[[str], Result]) -> Result:
    """Run something that is a query of the lake, by the id it is given, in this thread."""
    with admitted(service, caller) as id:
        ended, revoked = threading.Event(), threading.Event()

        def watch() -> None:
            while not ended.wait(LOOK_S):
                if not service.tokens.is_valid(caller.token.id):
                    revoked.set()
                elif not is_gone():
                    continue
                while not ended.wait(CANCEL_AGAIN_S):  # again, should it not have begun yet
                    service.lake.cancel(id)

        watcher = threading.Thread(target=watch, name="lithify-flight-watch", daemon=True)
        watcher.start()
        try:
            return run(id)
        except Cancelled as error:
            if revoked.is_set():
                raise Refusal(401, BAD_TOKEN, CHALLENGE) from error
            raise
        finally:
            ended.set()
            watcher.join()


def check_may_read(caller: Caller) -> None:
    if not caller.token.has("read"):
        raise Forbidden(f"token {caller.token.name} does not have the scope read")


def check_reads(sql: str) -> None:
    if is_statement(sql):
        raise InvalidRequest(READ_ONLY)


def _bare(sql: str) -> str:
    """Without a semicolon at its end, and what follows it."""
    tokens = [token for token in all_tokens(sql) if token.kind != "space"]
    while tokens and tokens[-1].text == ";":
        sql = sql[: tokens.pop().start]
    return sql
