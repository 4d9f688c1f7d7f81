"""What deltalake says when the operating system refused something below it: ours, by what was refused."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from lithify import Corruption, Lake, LithifyError, Unavailable
from lithify.delta.open_log import translated_error

REFUSED = "Kernel error: Arrow error: External: Generic LocalFileSystem error: Unable to rename file"


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.EIO, Corruption, "check the device"),
        (errno.ENOSPC, Unavailable, "free some disk space"),
        (errno.EDQUOT, Unavailable, "free some disk space"),
        (errno.EMFILE, Unavailable, "raise the limit"),
        (errno.ENFILE, Unavailable, "raise the limit"),
        (errno.EACCES, Unavailable, "check the owner and mode"),
        (errno.EROFS, Unavailable, "check the owner and mode"),
        (errno.ESTALE, Unavailable, "what it is called"),
    ],
)
def test_what_was_refused_below_is_named(number: int, kind: type[LithifyError], says: str) -> None:
    told = translated_error(DeltaError(f"{REFUSED}: what it is called (os error {number})"), Path("/lake/a"))

    assert type(told) is kind
    assert says in str(told)
    assert "/lake/a" in str(told)


def test_what_is_wrong_with_a_log_itself_is_said_of_the_log() -> None:
    told = translated_error(DeltaError("Invalid JSON in log line 4"), Path("/lake/a"))

    assert type(told) is Corruption
    assert "Invalid JSON in log line 4" in str(told)


def test_a_checkpoint_that_cannot_be_made_ends_a_cut_and_the_next_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lake(folder / "lake") as lake:
        table = lake.create_table("a.t", pa.schema([("id", pa.int64())]), key="id")
        for number in range(3):
            table.upsert([{"id": number}])
        log = table._internals.handles.changes.log
        with monkeypatch.context() as broken:

            def refuse(self: DeltaTable) -> None:
                raise DeltaError(f"{REFUSED}: Input/output error (os error 5)")

            broken.setattr(DeltaTable, "create_checkpoint", refuse)
            with pytest.raises(Corruption, match="I/O error"):
                log.cut(log.version)
        assert table.count() == 3

        log.cut(log.version)

        assert table.count() == 3
