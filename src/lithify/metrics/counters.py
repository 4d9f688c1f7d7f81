"""Counters of background work and of missing indexes, ready for a metrics endpoint. Each lake has its own registry.

Labels have few values (kinds and outcomes, never tables), so that the number of series stays small.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800)


class Counters:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.cycles = Counter("lithify_cycles", "Cycles by how they ended.", ["outcome"], registry=self.registry)
        self.cycle_running = Gauge("lithify_cycle_running", "1 while a cycle runs here.", registry=self.registry)
        self.cycle_ended = Gauge("lithify_cycle_ended_seconds", "When the last cycle ended.", registry=self.registry)
        self.cycle_seconds = Histogram(
            "lithify_cycle_seconds",
            "How long cycles took, by what they were for.",
            ["what"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.jobs = Counter(
            "lithify_jobs", "Jobs by kind and by how they ended.", ["kind", "outcome"], registry=self.registry
        )
        self.job_seconds = Histogram(
            "lithify_job_seconds", "How long jobs took.", ["kind"], buckets=_SECONDS, registry=self.registry
        )
        self.job_bytes = Counter(
            "lithify_job_bytes", "Bytes that jobs read and wrote.", ["kind", "direction"], registry=self.registry
        )
        self.files_compacted = Counter(
            "lithify_compacted_files",
            "Files that were merged into fewer ones, by tier.",
            ["tier"],
            registry=self.registry,
        )
        self.bytes_saved = Counter(
            "lithify_compaction_saved_bytes",
            "Bytes by which the merged files were larger than what came of them, by tier.",
            ["tier"],
            registry=self.registry,
        )
        self.jobs_recovered = Counter(
            "lithify_jobs_recovered",
            "Jobs settled here whose process was gone, by tier or kind.",
            ["tier"],
            registry=self.registry,
        )
        self.jobs_waiting = Gauge(
            "lithify_jobs_waiting", "Work that failed and waits to be tried again.", registry=self.registry
        )
        self.index_failures = Counter(
            "lithify_index_failures", "Times that a table's index could not be written.", registry=self.registry
        )
        self.index_fallbacks = Counter(
            "lithify_index_fallbacks",
            "Times that a read had to do without a part of a table's index, by cause.",
            ["cause"],
            registry=self.registry,
        )
        self.leases_lost = Counter(
            "lithify_leases_lost", "Times that another process took a lease over.", registry=self.registry
        )

    def text(self) -> bytes:
        """All of it, in the format that Prometheus reads."""
        return generate_latest(self.registry)
