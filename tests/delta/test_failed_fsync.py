"""A file whose fsync failed is not made durable by a second one: Linux drops what it could not write, and says so once.
What is acknowledged afterwards, by whomever, survives a power cut (invariant 1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lithify.delta.changes
from lithify import CommitUnknown, Lake, LithifyError, Settings, Unavailable
from lithify.delta.log import DeltaLog
from lithify.files.local import LocalStorage
from support import log_oracle
from support.bags import bag
from support.effort import SOAK
from support.powercut import Disk

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SETTINGS = Settings(checkpoint_every=2)


def rows(*keys: int) -> list[dict[str, Any]]:
    return [{"id": key, "v": f"v{key}"} for key in keys]


STEPS: list[Callable[[Lake], Any]] = [
    lambda lake: lake.create_table("a.t", SCHEMA, key="id", if_not_exists=True),
    lambda lake: lake.table("a.t").upsert(rows(1, 2), batch_id="b1"),
    lambda lake: lake.table("a.t").upsert(rows(3), batch_id="b2"),
    lambda lake: lake.table("a.t").delete([2], batch_id="b3"),
    lambda lake: lake.table("a.t").fold(),
    lambda lake: lake.table("a.t").upsert(rows(4), batch_id="b4"),
    lambda lake: lake.table("a.t").fold(),
]
STATES = [bag(found) for found in ([], rows(1, 2), rows(1, 2, 3), rows(1, 3), rows(1, 3), rows(1, 3, 4), rows(1, 3, 4))]


@pytest.fixture(autouse=True)
def _short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that commits are taken out of the log, in trust of what was synced."""
    monkeypatch.setattr(lithify.delta.changes, "LIVE_COMMITS_MIN", 1)
    monkeypatch.setattr(lithify.delta.changes, "LIVE_COMMITS_MAX", 2)


def rows_after(left: Path) -> Counter[Any]:
    with Lake(left / "lake", settings=SETTINGS) as lake:
        found = bag(lake.table("a.t").to_arrow().to_pylist())
        lake.table("a.t").upsert(rows(99))
        assert bag(lake.table("a.t").to_arrow().to_pylist()) == found + bag(rows(99)), "it cannot be written to"
    return found


def run(disk: Disk, root: Path, folder: Path, another: bool) -> str | None:
    """Each step, again after an error, by this process or by `another`. What is wrong after a cut behind each."""
    lake = Lake(root / "lake", settings=SETTINGS)
    try:
        for number, step in enumerate(STEPS):
            for last in (False, False, True):
                try:
                    step(lake)
                    break
                except LithifyError as error:
                    if last:
                        return f"step {number} cannot be done: {error!r}"
                    if another:
                        lake.close()
                        lake = Lake(root / "lake", settings=SETTINGS)
            if disk.failed is not None:
                lake.table("a.t")._internals.handles.changes.log.trim_if_due()
                left = disk.strict(folder / f"cut-{disk.file_syncs}")
                try:
                    if (found := rows_after(left)) != STATES[number]:
                        return f"after step {number} was acknowledged: {found}"
                except LithifyError as error:
                    return f"after step {number} was acknowledged: {error!r}"
    finally:
        lake.close()
    return None


@pytest.mark.slow
@pytest.mark.parametrize("another", [False, True], ids=["the same process", "another process"])
def test_nothing_is_acknowledged_by_an_fsync_that_follows_a_failed_one(folder: Path, another: bool) -> None:
    (folder / "rehearsal").mkdir()
    with Disk(folder / "rehearsal") as disk:
        assert run(disk, folder / "rehearsal", folder, another) is None
    wrong, kinds = [], set()
    for nth in range(1, disk.file_syncs + 1, 1 if SOAK else 3):
        root = folder / f"disk-{nth}"
        root.mkdir()
        with Disk(root, fails=lambda number, path, nth=nth: number == nth) as failing:
            try:
                what = run(failing, root, folder / f"cuts-{nth}", another)
            except LithifyError:  # the lake itself could not be made
                what = None
        assert failing.failed is not None
        kinds.add(failing.failed.suffix)
        if what is not None:
            wrong.append(f"fsync {nth}, of {failing.failed}: {what}")
    assert not wrong, "\n".join(wrong)
    assert {".json", ".parquet"} <= kinds


def is_commit_1(number: int, path: Path) -> bool:
    return f"{1:020d}.json" in path.name


def test_a_commit_of_files_that_cannot_be_synced_is_never_seen(folder: Path) -> None:
    (folder / "disk").mkdir()
    path = folder / "disk" / "lake"
    with Lake(path) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Disk(folder / "disk", fails=is_commit_1) as disk, Lake(path) as lake:
        table = lake.table("a.t")
        with pytest.raises(LithifyError) as refused:
            table.upsert(rows(1), batch_id="b1")
        assert not isinstance(refused.value, CommitUnknown)
        assert disk.failed is not None
        assert not disk.failed.exists()
        assert log_oracle.tables(path) == {"a.t": bag([])}
        assert not table.upsert(rows(1), batch_id="b1").replayed
        left = disk.strict(folder / "cut")
    assert rows_after(left) == bag(rows(1))


@pytest.mark.parametrize("another", [False, True], ids=["the same process", "another process"])
def test_a_commit_of_another_writer_whose_fsync_failed_is_written_anew_before_it_is_built_on(
    folder: Path, another: bool
) -> None:
    (folder / "disk").mkdir()
    path = folder / "disk" / "lake"
    with Lake(path) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Disk(folder / "disk", fails=is_commit_1) as disk:
        lake = Lake(path)
        with pytest.raises(CommitUnknown, match="read the table"):
            lake.table("a.t").set_options({"checkpoint_every": 7})  # deltalake writes that
        if another:
            lake.close()
            lake = Lake(path)
        lake.table("a.t").upsert(rows(1))
        lake.close()
        left = disk.strict(folder / "cut")
    with Lake(left / "lake") as lake:
        assert lake.table("a.t").options["checkpoint_every"] == 7
        assert bag(lake.table("a.t").to_arrow().to_pylist()) == bag(rows(1))
    assert log_oracle.tables(path) == {"a.t": bag(rows(1))}
    assert not list(path.rglob(".doubted-*"))


def test_a_commit_that_the_kernel_has_dropped_is_not_built_on(folder: Path) -> None:
    """Nor overwritten: what is read is not what was written."""
    (folder / "disk").mkdir()
    path = folder / "disk" / "lake"
    with Lake(path) as lake:
        lake.create_table("a.t", SCHEMA, key="id")
    with Disk(folder / "disk", fails=is_commit_1) as disk, Lake(path) as lake:
        table = lake.table("a.t")
        with pytest.raises(CommitUnknown):
            table.set_options({"checkpoint_every": 7})
        assert disk.failed is not None
        disk.failed.write_bytes(bytes(disk.failed.stat().st_size))
        for _ in range(2):
            with pytest.raises(LithifyError, match="not readable"):
                table.upsert(rows(1), batch_id="b1")


def test_a_checkpoint_whose_fsync_failed_carries_no_log(folder: Path) -> None:
    """Commits are not taken out of the log in trust of it; the next one does."""
    path = folder / "lake"
    with Lake(path, settings=Settings(checkpoint_every=1000)) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        log = table._internals.handles.changes.log
        for key in range(4):
            table.upsert(rows(key))
        log._store = log._commits.store = failing = FailsOnce(".checkpoint.parquet")
        log.checkpoint(trim=False)
        assert failing.failed
        for key in range(4, 8):
            table.upsert(rows(key))
        before = log.versions()
        log.checkpoint(trim=False)
        log.trim_if_due()
        assert names_of(log) >= {f"{version:020d}.json" for version in before}, "a checkpoint in doubt was trusted"
        table.upsert(rows(8))
        log.checkpoint(trim=False)
        log.trim_if_due()
        assert f"{0:020d}.json" not in names_of(log)


class FailsOnce(LocalStorage):
    """The first fsync of a file with such a name fails."""

    def __init__(self, ending: str) -> None:
        self._ending, self.failed = ending, False

    def sync_file(self, path: Path) -> None:
        if not self.failed and path.name.endswith(self._ending):
            self.failed = True
            self._doubt(path)
            raise Unavailable(f"{path}: input/output error")
        super().sync_file(path)


def names_of(log: DeltaLog) -> set[str]:
    return {entry.name for entry in (log.path / "_delta_log").iterdir()}
