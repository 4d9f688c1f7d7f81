"""Coverage-guided fuzzing of the reader: `python tests/index/fuzz_reader.py [libFuzzer options] [corpus folder]`.

Whatever a file holds, opening it and touching everything in it raises Corruption or NotFound, or nothing. Random
changes would end at the first checksum; so for every input of even length all checksums are made right again before
the reader sees it, and what lies behind them is put to the test. The reader itself knows nothing of this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["lithify.index"]):
    from lithify.index import block, block_builder, reader

import numpy as np

from lithify.errors import Corruption, NotFound
from support.sidecars import TABLE_ID, repaired

SAMPLED = 32
INPUT_BYTES_MAX = 8_192


def sampled(count: int) -> Iterable[int]:
    """Positions of an array that may claim to have millions."""
    return sorted({*range(min(count, SAMPLED)), *range(max(0, count - SAMPLED), count)})


def touch(array: np.ndarray) -> None:
    for number in sampled(len(array)):
        int(array[number])


def touch_block(block: block.Block) -> None:
    block.paths.validate(full=True)
    block.paths.to_pylist()
    for array in (block.sizes, block.footer_bytes, block.tags, block.rows, block.first_group, block.file_of_group):
        touch(array)
    for array in (block.group_rows, block.group_bytes, block.group_raw_bytes):
        touch(array)
    block.files_hashed(np.array([0, 2**64 - 1], np.uint64))
    for number, column in enumerate(block.columns):
        block.stats(column.name)
        block.chunks(column.name)
        stats = block.stats_of(number)
        touch(stats.flags)
        touch(stats.nulls)
        touch(stats.low.view(np.uint64))
        touch(stats.high.view(np.uint64))
        for array in vars(block.chunks_of(number)).values():
            touch(array)
        for group in sampled(block.groups):
            stats.full_low(group)
            stats.full_high(group)


def touch_everything(path: Path) -> None:
    sidecar = reader.Sidecar.open(path, TABLE_ID)
    sidecar.refresh()
    for version in [sidecar.version, *sidecar.versions(), 0]:
        view = sidecar.view(version)
        for live in view.blocks:
            touch_block(live.block)
            if live.block.groups < 10_000:
                block.parse(block_builder.merge([(live.block, live.live)]))
        assert 0 <= view.dead_share <= 1


def test_one_input(data: bytes) -> None:
    if len(data) % 2 == 0:
        data = repaired(data)
    # No link leads to it: those are not followed.
    path = Path(f"/dev/shm/lithify-fuzzed-{os.getpid()}.pm")
    try:
        path.write_bytes(data)
        touch_everything(path)
    except (Corruption, NotFound):
        pass
    finally:
        path.unlink()


if __name__ == "__main__":
    atheris.Setup([*sys.argv, f"-max_len={INPUT_BYTES_MAX}"], test_one_input)
    atheris.Fuzz()
