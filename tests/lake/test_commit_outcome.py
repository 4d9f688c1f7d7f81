"""From the moment that a commit may have landed, nothing that goes wrong deletes what it names, and the answer is
"committed", "unknown", or, after the log was read and says so, an error (invariant 2).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import CommitUnknown, Lake, Settings
from lithify.store.local import Store, translated
from support import log_oracle
from support.effort import SOAK, thinned
from support.operations import OPERATIONS, Answer, expected, judge, made, made_ready, opened
from support.stopping import StoppingStore

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
SHORT = Settings(checkpoint_every=3)


class FailsToRead(Store):
    """From the moment that a commit is tried, the next `times` reads of the log's pointer to its checkpoint fail."""

    def __init__(self, number: int, times: int) -> None:
        self._number, self._left = number, times
        self.tried = self.armed = False

    def step(self, name: str) -> None:
        self.tried = self.tried or (self.armed and name == "log.swap")

    def read(self, path: Path) -> bytes:
        if self.tried and self._left and path.name == "_last_checkpoint":
            self._left -= 1
            with translated(path):
                raise OSError(self._number, os.strerror(self._number), str(path))
        return super().read(path)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.ENOMEM])
def test_a_commit_that_cannot_be_looked_at_again_keeps_its_files(folder: Path, number: int) -> None:
    store = FailsToRead(number, 1)
    with Lake(folder / "lake", settings=SHORT, store=store) as lake:
        table = lake.create_table("a.t", SCHEMA, key="id")
        for key in range(5):
            table.upsert([{"id": key, "v": "acknowledged"}])
        store.armed = True
        with pytest.raises(CommitUnknown, match="read the table before you retry"):
            table.upsert([{"id": 9, "v": "perhaps"}])
        assert len(table.to_arrow()) == 6
        table.fold()
    with Lake(folder / "lake") as lake:
        assert len(lake.table("a.t").to_arrow()) == 6
    log_oracle.tables(folder / "lake")


class Unforeseen(Exception):
    """What nobody has thought of."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_work_that_is_stopped_at_any_storage_call(folder: Path, name: str) -> None:
    """By whoever presses Ctrl-C, or by an error that nobody has thought of."""
    source = made(name, folder / "made")
    recording = StoppingStore()
    stopped(made_ready(name, source, folder / "recorded"), name, recording)
    wanted = expected(name, made_ready(name, source, folder / "wanted"))
    kinds = itertools.cycle((KeyboardInterrupt, Unforeseen))
    calls = [(number, *call) for number, call in enumerate(recording.calls, 1)]
    for number, step, verb in thinned(calls, lambda call: [call[1:]]):
        for kind in (KeyboardInterrupt, Unforeseen) if SOAK else (next(kinds),):
            path = made_ready(name, source, folder / f"{number}-{kind.__name__}")
            error = stopped(path, name, StoppingStore(number, kind()))
            with told(f"{name} stopped at {verb} {number} after {step}, answered {error!r}"):
                judge(name, path, Answer.of(error), wanted)


def stopped(path: Path, name: str, store: StoppingStore) -> BaseException | None:
    with opened(path, store) as lake:
        store.armed = True
        try:
            OPERATIONS[name].run(lake)
        except BaseException as error:
            return error
        finally:
            store.armed = False
    return None


@contextlib.contextmanager
def told(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as wrong:
        raise AssertionError(f"{where}: {wrong!r}") from wrong
