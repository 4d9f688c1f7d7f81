"""Counters of maintenance and of missing indexes, ready for a metrics endpoint. Each lake has its own registry.

Labels have few values (kinds and outcomes, never tables), so that the number of series stays small.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800)


class Counters:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self.registry), partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, buckets=_SECONDS, registry=self.registry)
        self.cycles = counter("lithify_cycles", "Cycles by how they ended.", ["outcome"])
        self.cycle_running = gauge("lithify_cycle_running", "1 while a cycle runs here.")
        self.cycle_ended = gauge("lithify_cycle_ended_seconds", "When the last cycle ended.")
        self.cycle_seconds = histogram(
            "lithify_cycle_seconds", "How long cycles took, by what they were for.", ["what"]
        )
        self.jobs = counter("lithify_jobs", "Jobs by kind and by how they ended.", ["kind", "outcome"])
        self.job_done = gauge("lithify_job_done_seconds", "When a job was last done here, by kind.", ["kind"])
        self.job_seconds = histogram("lithify_job_seconds", "How long jobs took.", ["kind"])
        self.job_bytes = counter("lithify_job_bytes", "Bytes that jobs read and wrote.", ["kind", "direction"])
        merged = "Files that were merged into fewer ones, by tier."
        self.files_compacted = counter("lithify_compacted_files", merged, ["tier"])
        saved = "Bytes by which the merged files were larger than what came of them, by tier."
        self.bytes_saved = counter("lithify_compaction_saved_bytes", saved, ["tier"])
        recovered = "Jobs recovered here whose process was gone, by tier or kind."
        self.jobs_recovered = counter("lithify_jobs_recovered", recovered, ["tier"])
        self.jobs_waiting = gauge("lithify_jobs_waiting", "Work that failed and waits to be tried again.")
        runs = "Runs of declared pipelines and streams here, by how they ended."
        self.pipeline_runs = counter("lithify_pipeline_runs", runs, ["outcome"])
        self.index_failures = counter("lithify_index_failures", "Times that a table's index could not be written.")
        fallbacks = "Times that a read had to do without a part of a table's index, by cause."
        self.index_fallbacks = counter("lithify_index_fallbacks", fallbacks, ["cause"])
        self.rows_expired = counter("lithify_expired_rows", "Rows that were dropped because they had expired.")
        self.leases_lost = counter("lithify_leases_lost", "Times that another process took a lease over.")

    def text(self) -> bytes:
        """All of it, in the format that Prometheus reads."""
        return generate_latest(self.registry)
