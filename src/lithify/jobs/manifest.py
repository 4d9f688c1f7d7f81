"""Manifests of jobs: a file for each, before its first output byte. What a manifest says is trusted only as far as it
can be: one that names a folder or a file that is no job's business is set aside, and nothing is deleted by it.
"""

from __future__ import annotations

import contextlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import PurePath

from lithify.core.disk_files import lies_inside
from lithify.core.names import is_job_folder, parse_table_name
from lithify.delta.changes import job_txn
from lithify.errors import InvalidRequest, NotFound
from lithify.tables.runtime import Owner, Runtime

logger = logging.getLogger(__name__)

COMMITTED, FENCED = 1, 2
WRITING, COMMITTING = "writing", "committing"


@dataclass(frozen=True)
class Job:
    id: str
    kind: str
    table: str
    log: str
    folder: str
    owner: Owner
    created_ms: int
    inputs: tuple[str, ...] = ()
    state: str = WRITING
    lease: int | None = None
    why: str = ""

    @property
    def txn(self) -> dict[str, int]:
        return {job_txn(self.id): COMMITTED}


def manifests(runtime: Runtime) -> list[PurePath]:
    folder = runtime.control / "jobs"
    names = runtime.store.names(folder)
    return [folder / name for name in names if name.endswith(".json") and not name.startswith(".")]


def manifest_path(runtime: Runtime, job_id: str) -> PurePath:
    return runtime.control / "jobs" / f"{job_id}.json"


def write_manifest(runtime: Runtime, job: Job) -> None:
    runtime.store.put(manifest_path(runtime, job.id), json.dumps(asdict(job)).encode())


def parsed_manifest(runtime: Runtime, path: PurePath) -> Job:
    fields = json.loads(runtime.store.read(path))
    job = Job(**{**fields, "owner": Owner(**fields["owner"]), "inputs": tuple(fields.get("inputs", ()))})
    parse_table_name(job.table)
    if not is_job_folder(job.folder) or job.log not in ("base", "changes"):
        raise ValueError(f"it names the folder {job.log}/{job.folder}, which no job writes to")
    if job.folder != f"{job.kind}-{job.id}" or job.id not in path.name:
        raise ValueError(f"it is of job {job.id!r}, which its own name and that of its folder do not say")
    for name in job.inputs:
        if not isinstance(name, str) or not lies_inside(name):
            raise ValueError(f"it names the input {name!r}, which is outside the table's folder")
    return job


def read_manifest(runtime: Runtime, path: PurePath, set_aside: bool) -> Job | None:
    try:
        return parsed_manifest(runtime, path)
    except NotFound:
        return None
    except (ValueError, TypeError, KeyError, AttributeError, InvalidRequest) as error:
        if set_aside:
            aside = path.with_suffix(".unreadable")
            logger.warning("setting aside manifest %s as %s, it cannot be trusted: %s", path, aside.name, error)
            with contextlib.suppress(NotFound):
                runtime.store.move(path, aside)
        return None
