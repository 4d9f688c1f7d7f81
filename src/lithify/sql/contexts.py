"""DataFusion's contexts, each for one query: how it is set up, what it may take, where its links lie."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from pathlib import PurePath

from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

from lithify.core.read_plan import Source
from lithify.files.scratch import Scratch
from lithify.sql import time_functions
from lithify.sql.analysis import Care
from lithify.sql.scan_files import LinkFolder, must_doubt, scanning_config


class Session:
    """Where relations are built, if there are any to build."""

    def __init__(self, make: Callable[[], SessionContext], links: LinkFolder, *, careful: bool) -> None:
        """`careful`: statistics of files rule nothing out."""
        self._make, self.links, self.careful = make, links, careful

    @cached_property
    def ctx(self) -> SessionContext:
        return self._make()


class Contexts:
    def __init__(self, memory_bytes_max: int, threads: int | None = None) -> None:
        self._memory_bytes_max, self._threads = memory_bytes_max, threads
        self._root: Scratch | None = None
        self._lock = threading.Lock()
        self._configs: dict[tuple[str, str, Care, bool, bool], SessionConfig] = {}

    def close(self) -> None:
        if self._root is not None:
            self._root.close()
            self._root = None

    @contextlib.contextmanager
    def session(self, care: Care = Care.NONE, sources: Iterable[Source] = ()) -> Iterator[Session]:
        """All rows must have come by its end: then it is checked that none of their files was passed over. `sources`:
        what will be read, where that is known.
        """
        if must_doubt(sources):
            care = Care.NO_STATISTICS
        links = LinkFolder(self._folder())
        try:
            make = partial(self.context, "datafusion", "public", care)
            yield Session(make, links, careful=care is Care.NO_STATISTICS)
            links.check()
        finally:
            links.remove()

    def context(
        self,
        catalog: str,
        schema: str,
        care: Care = Care.NONE,
        *,
        one_thread: bool = False,
        hash_joins: bool = True,
        memory_bytes_max: int | None = None,
        may_spill: bool = True,
    ) -> SessionContext:
        """One query's: its memory is counted for it alone."""
        key = catalog, schema, care, one_thread, hash_joins
        if key not in self._configs:
            config = self._config(catalog, schema, care)
            threads = 1 if one_thread else self._threads
            if not hash_joins:
                config = config.set("datafusion.optimizer.prefer_hash_join", "false")
                threads = max(self._threads or 2, 2)  # with one, the engine takes no other join
            self._configs[key] = config.with_target_partitions(threads) if threads else config
        runtime = RuntimeEnvBuilder()
        runtime = runtime.with_disk_manager_os() if may_spill else runtime.with_disk_manager_disabled()
        ctx = SessionContext(
            self._configs[key], runtime.with_fair_spill_pool(memory_bytes_max or self._memory_bytes_max)
        )
        time_functions.register(ctx)
        return ctx

    def _config(self, catalog: str, schema: str, care: Care) -> SessionConfig:
        config = (
            scanning_config()
            .with_default_catalog_and_schema(catalog, schema)
            .set("datafusion.execution.time_zone", "UTC")
            # 765474.49 as a double is not 765474.49 (see `literals`).
            .set("datafusion.sql_parser.parse_float_as_decimal", "true")
            # It takes `x` for the column x of the table where a subquery or a view has given that name to something
            # else, as soon as a field of a struct is asked for beside it.
            .set("datafusion.optimizer.enable_leaf_expression_pushdown", "false")
            # Changed keys that are integers and lie this close are looked up in an array instead of a hash table.
            .set("datafusion.execution.perfect_hash_join_min_key_density", "0.001")
            .set("datafusion.execution.perfect_hash_join_small_build_threshold", "1000000")
            # Hidden keys are few beside base: share them with every scan instead of shuffling base to meet them. Joins
            # of hot tables take half the processor time that way.
            .set("datafusion.optimizer.hash_join_single_partition_threshold", str(64 * 2**20))
            .set("datafusion.optimizer.hash_join_single_partition_threshold_rows", "4000000")
        )
        if care is not Care.NONE:
            config = config.set("datafusion.execution.collect_statistics", "false")
        if care is Care.NO_STATISTICS:
            config = (
                config.set("datafusion.execution.parquet.pruning", "false")
                .set("datafusion.execution.parquet.enable_page_index", "false")
                .set("datafusion.optimizer.enable_dynamic_filter_pushdown", "false")
            )
        return config

    def _folder(self) -> PurePath:
        with self._lock:
            if self._root is None:
                self._root = Scratch("serving")
                atexit.register(self._root.close)
            return self._root.path
