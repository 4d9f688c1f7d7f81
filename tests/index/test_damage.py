"""Any damage is found, or does no harm: what can still be read of a file is what was written into it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lithify.errors import Corruption
from lithify.files.local import LocalStorage
from lithify.index import writer
from lithify.index.format import HEAD_OFFSET, HEADER_BYTES
from lithify.index.reader import Sidecar
from support.effort import SOAK
from support.golden_sidecars import GOLDEN, NAMES
from support.sidecars import TABLE_ID, State, offsets, readable_states, sample_entry, states

FEW = (0x01, 0x80, 0xFF)
ANY = range(1, 256) if SOAK else (*(1 << bit for bit in range(8)), 0x7F, 0xFF)


@contextmanager
def flipping(path: Path) -> Iterator[Callable[[int, int], None]]:
    """A file whose bytes can be changed one at a time; the change before is undone."""
    original = path.read_bytes()
    fd = os.open(path, os.O_RDWR)
    last = 0

    def flip(offset: int, bits: int) -> None:
        nonlocal last
        os.pwrite(fd, original[last : last + 1], last)
        os.pwrite(fd, bytes([original[offset] ^ bits]), offset)
        last = offset

    try:
        yield flip
    finally:
        os.close(fd)


def golden_copy(name: str, folder: Path) -> tuple[Path, dict[int, State]]:
    path = folder / f"{name}.pm"
    path.write_bytes((GOLDEN / f"{name}.pm").read_bytes())
    return path, states(Sidecar.open(path, TABLE_ID))


def assert_true(found: list[tuple[int, State]], truth: dict[int, State], what: str) -> None:
    for version, state in found:
        assert state == truth.get(version), what


@pytest.mark.parametrize("name", ["plain", pytest.param("chain", marks=pytest.mark.slow)])
def test_each_byte_flipped_is_found_or_harmless(name: str, folder: Path) -> None:
    path, truth = golden_copy(name, folder)
    with flipping(path) as flip:
        for offset in range(path.stat().st_size):
            for bits in FEW if SOAK else FEW[offset % 3 :: 3]:
                flip(offset, bits)
                assert_true(readable_states(path), truth, f"byte {offset} flipped by {bits:#x}")


@pytest.mark.slow
def test_each_byte_of_a_file_of_all_types_flipped_is_found_or_harmless(folder: Path) -> None:
    path, truth = golden_copy("types", folder)
    with flipping(path) as flip:
        for offset in range(path.stat().st_size):
            flip(offset, 0xFF)
            assert_true(readable_states(path), truth, f"byte {offset} flipped")


@pytest.mark.slow
def test_other_values_of_each_byte_of_header_and_footers_are_refused(folder: Path) -> None:
    path, truth = golden_copy("chain", folder)
    data = path.read_bytes()
    footers = []
    for offset in offsets(data, b"PMFT"):
        length = int.from_bytes(data[offset + 4 : offset + 8], "little")
        if length < len(data):  # or it is what the dead writer left
            footers += range(offset, offset + length)
    assert len(footers) > 3 * 72
    with flipping(path) as flip:
        for offset in [*range(HEAD_OFFSET), *footers]:
            for bits in ANY:
                flip(offset, bits)
                with pytest.raises(Corruption):
                    Sidecar.open(path, TABLE_ID).versions()
        for offset in range(HEAD_OFFSET, HEADER_BYTES):
            for bits in ANY:
                flip(offset, bits)
                assert_true(readable_states(path), truth, f"byte {offset} flipped by {bits:#x}")


def test_a_mask_of_other_files_of_the_same_number_is_refused(folder: Path) -> None:
    path = folder / "x.pm"
    both = writer.merge([(writer.parse(sample_entry(name, 0)), None) for name in "ab"])
    writer.create(LocalStorage(), path, TABLE_ID, 0, [both])
    writer.append(LocalStorage(), path, TABLE_ID, 1, [], ["a"])
    (reference,) = Sidecar.open(path, TABLE_ID).view().footer.references
    with flipping(path) as flip:
        flip(int(reference["mask"]), 0b11)
        damaged = Sidecar.open(path, TABLE_ID).view()

        with pytest.raises(Corruption, match="mask"):
            damaged.blocks  # noqa: B018


@pytest.mark.parametrize("name", NAMES)
def test_a_file_cut_at_any_length_is_refused(name: str, folder: Path) -> None:
    path, _ = golden_copy(name, folder)
    for length in reversed(range(path.stat().st_size)):
        os.truncate(path, length)
        with pytest.raises(Corruption):
            Sidecar.open(path, TABLE_ID)


def test_a_file_cut_and_refilled_with_zeros_is_refused(folder: Path) -> None:
    """As some file systems leave a file after a power cut."""
    path, truth = golden_copy("chain", folder)
    size = path.stat().st_size
    for length in reversed(range(size)):
        os.truncate(path, length)
        os.truncate(path, size)
        assert_true(readable_states(path), truth, f"zeros from {length}")


def test_a_range_that_is_overwritten_is_found_or_harmless(folder: Path) -> None:
    path, truth = golden_copy("chain", folder)
    data, chance = path.read_bytes(), random.Random(7)
    for attempt in range(1_000):
        first, other = sorted(chance.choices(range(0, len(data), 8), k=2))
        length = min(chance.choice([8, 64, 512]), len(data) - other)
        path.write_bytes(data[:first] + data[other : other + length] + data[first + length :])
        assert_true(readable_states(path), truth, f"attempt {attempt}: {length} bytes of {other} at {first}")
