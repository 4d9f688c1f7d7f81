"""Life of a sidecar: created, extended, replaced, read at any version, refused when it is not what it should be."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from lithify.errors import Corruption, LithifyError, NotFound, Unavailable
from lithify.files.local import LocalStorage
from lithify.index import reader, writer
from lithify.index.block import parse
from lithify.index.format import (
    COLUMNS_MAX,
    FOOTER,
    FOOTER_END,
    FOOTER_MAGIC,
    GROUPS_MAX,
    HEAD_OFFSET,
    HEADER_BYTES,
    TAGGED,
    crc32,
)
from lithify.index.reader import Sidecar
from support import children, sidecar_writes
from support.faults import FaultyStore, disk_full
from support.golden_sidecars import FILE_ID, GOLDEN, build_chain
from support.sidecars import TABLE_ID, entries, entry, readable_states, repaired, sample_entry, state, states

OTHER_TABLE = "00000000-0000-4000-8000-000000000000"
REQUIRED, OPTIONAL = 1 << 40, 1 << 3


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "index" / "base.pm"


def create(path: Path, names: Iterable[str] = ("a", "b"), version: int = 0) -> None:
    writer.create(
        LocalStorage(), path, TABLE_ID, version, [sample_entry(name, number) for number, name in enumerate(names)]
    )


def append(path: Path, version: int, names: Iterable[str] = (), removed: Iterable[str] = ()) -> None:
    blocks = [sample_entry(name, number + version) for number, name in enumerate(names)]
    writer.append(LocalStorage(), path, TABLE_ID, version, blocks, list(removed))


def read(path: Path) -> set[str]:
    return set(state(Sidecar.open(path, TABLE_ID).view()))


def patched(path: Path, offset: int, form: str, *values: int) -> None:
    """Overwrite some bytes, and make all checksums right again."""
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, offset, *values)
    path.write_bytes(repaired(bytes(data)))


# -- create, append, replace


def test_what_was_created_reads_back(path: Path) -> None:
    blocks = [sample_entry(name, kind) for kind, name in enumerate(["a", "b", "c", "d"])]

    writer.create(LocalStorage(), path, TABLE_ID, 3, blocks)

    sidecar = Sidecar.open(path, TABLE_ID)
    expected = {name: found for block in blocks for name, found in entries(parse(block)).items()}
    assert (sidecar.version, state(sidecar.view())) == (3, expected)
    assert sorted(os.listdir(path.parent)) == ["base.pm", "base.pm.lock"]


def test_an_appended_file_reads_back_beside_the_others(path: Path) -> None:
    create(path)
    before = state(Sidecar.open(path, TABLE_ID).view())
    new = entry("c", pa.table({"id": range(10)}), row_group_size=5)

    writer.append(LocalStorage(), path, TABLE_ID, 1, [new], [])

    assert state(Sidecar.open(path, TABLE_ID).view()) == before | entries(parse(new))


def test_a_file_is_replaced_by_another_under_its_name(path: Path) -> None:
    create(path)
    new = entry("a", pa.table({"id": range(10)}), row_group_size=5)

    writer.append(LocalStorage(), path, TABLE_ID, 1, [new], ["a"])

    found = states(Sidecar.open(path, TABLE_ID))
    assert found[1]["a"] == entries(parse(new))["a"]
    assert found[0]["a"] == entries(parse(sample_entry("a", 0)))["a"]
    assert found[0]["b"] == found[1]["b"]


def test_a_block_without_live_files_is_no_longer_listed(path: Path) -> None:
    create(path, ["a"])
    append(path, 1, ["b"])

    append(path, 2, removed=["a"])

    view = Sidecar.open(path, TABLE_ID).view()
    assert [live.block.paths.to_pylist() for live in view.blocks] == [["b"]]


def test_removing_all_files_leaves_an_empty_sidecar_that_can_grow(path: Path) -> None:
    create(path)
    append(path, 1, removed=["a", "b"])
    assert read(path) == set()

    append(path, 2, ["c"])

    assert read(path) == {"c"}


def test_a_sidecar_of_no_files_reads_back(path: Path) -> None:
    create(path, [])

    view = Sidecar.open(path, TABLE_ID).view()
    assert (view.files, view.groups, view.blocks, view.dead_share) == (0, 0, (), 0)


def test_many_small_blocks_are_merged_into_one(path: Path) -> None:
    create(path, ["a"])
    for version in range(1, 40):
        append(path, version, [f"file {version}"])

    sidecar = Sidecar.open(path, TABLE_ID)
    assert len(sidecar.view().blocks) < 2 * writer.MERGE_BLOCKS
    assert {version: len(files) for version, files in states(sidecar).items()} == {v: v + 1 for v in range(40)}


def test_a_rewritten_file_holds_the_live_entries_and_nothing_dead(path: Path) -> None:
    create(path, ["a", "b", "c"])
    append(path, 1, ["d"], ["a", "c"])
    before, old = state(Sidecar.open(path, TABLE_ID).view()), Sidecar.open(path, TABLE_ID)

    writer.rewrite(LocalStorage(), path, TABLE_ID)

    sidecar = Sidecar.open(path, TABLE_ID)
    assert (sidecar.version, state(sidecar.view())) == (1, before)
    assert sidecar.view().dead_share == 0 < old.view().dead_share
    assert sidecar.file_id != old.file_id
    with pytest.raises(NotFound):
        sidecar.view(0)


def test_a_version_that_goes_back_does_not_hide_entries(path: Path) -> None:
    """Two processes may report their commits in the other order."""
    create(path, version=5)

    append(path, 4, ["c"])

    sidecar = Sidecar.open(path, TABLE_ID)
    assert (sidecar.version, set(state(sidecar.view(5)))) == (5, {"a", "b", "c"})


# -- what dead writers leave


@pytest.mark.parametrize("rest", [b"\xff", b"PMFT", b"\0" * 7, b"PMBK" * 100])
def test_rubbish_at_the_end_is_passed_over_by_the_next_commit(path: Path, rest: bytes) -> None:
    create(path)
    with path.open("ab") as file:
        file.write(rest)
    assert read(path) == {"a", "b"}

    append(path, 1, ["c"], ["a"])

    assert states(Sidecar.open(path, TABLE_ID)).keys() == {0, 1}
    assert read(path) == {"b", "c"}


def test_a_whole_commit_without_its_head_is_passed_over_by_the_next(path: Path) -> None:
    create(path)
    head = path.read_bytes()[HEAD_OFFSET:HEADER_BYTES]
    append(path, 1, ["dead"], ["a"])
    LocalStorage().patch(path, HEAD_OFFSET, head)
    assert read(path) == {"a", "b"}

    append(path, 2, ["c"], ["b"])

    sidecar = Sidecar.open(path, TABLE_ID)
    assert {version: set(found) for version, found in states(sidecar).items()} == {0: {"a", "b"}, 2: {"a", "c"}}


def test_a_commit_torn_at_any_length_changes_nothing_and_is_passed_over(path: Path) -> None:
    create(path, ["a"])
    before = path.read_bytes()
    append(path, 1, ["dead"])
    grown = path.read_bytes()
    for length in range(len(before), len(grown), 5):
        path.write_bytes(before + grown[len(before) : length])
        assert read(path) == {"a"}
        append(path, 2, ["c"])
        assert read(path) == {"a", "c"}


# -- chains


def footer_at(offset: int, version: int, previous: int) -> bytes:
    body = FOOTER.pack(FOOTER_MAGIC, 72, version, previous, FILE_ID, 0, 0, 0, 0, 0)
    return body + crc32(body).to_bytes(4, "little") + FOOTER_END


def chain(path: Path, *previous: int) -> None:
    """Empty footers one after the other from byte 64 on, each with its `previous`; the last is the head."""
    shutil.copy(GOLDEN / "plain.pm", path)
    footers = [footer_at(64 + 72 * number, 10 * number, before) for number, before in enumerate(previous)]
    path.write_bytes(path.read_bytes()[:64] + b"".join(footers))
    LocalStorage().patch(path, HEAD_OFFSET, (64 + 72 * (len(footers) - 1)).to_bytes(8, "little"))


def test_a_chain_that_goes_down_is_walked(folder: Path) -> None:
    chain(folder / "x.pm", 0, 64, 136)

    assert Sidecar.open(folder / "x.pm", TABLE_ID).versions() == [20, 10, 0]


@pytest.mark.parametrize(
    "previous",
    [
        pytest.param((0, 136), id="itself"),
        pytest.param((136, 64), id="in a circle"),
        pytest.param((0, 208, 136), id="forwards"),
        pytest.param((0, 2**64 - 8), id="beyond the end"),
        pytest.param((0, 8), id="into the header"),
        pytest.param((0, 65), id="between the places"),
        pytest.param((0, 72), id="to no footer"),
    ],
)
def test_a_chain_that_leads_anywhere_else_is_refused(folder: Path, previous: tuple[int, ...]) -> None:
    chain(folder / "x.pm", *previous)

    with pytest.raises(Corruption):
        Sidecar.open(folder / "x.pm", TABLE_ID).view(0)


def test_each_of_three_versions_has_its_entries(folder: Path) -> None:
    build_chain(folder / "x.pm")
    sidecar = Sidecar.open(folder / "x.pm", TABLE_ID)

    found = {version: (sidecar.view(version).version, len(state(sidecar.view(version)))) for version in range(1, 8)}

    assert found == {1: (1, 2), 2: (2, 3), 3: (2, 3), 4: (2, 3), 5: (5, 2), 6: (5, 2), 7: (5, 2)}
    with pytest.raises(NotFound):
        sidecar.view(0)


# -- readers and writers at once


def test_a_reader_follows_a_file_that_has_grown(path: Path) -> None:
    create(path)
    sidecar = Sidecar.open(path, TABLE_ID)
    for version in range(1, 30):
        append(path, version, [f"file {version}"])

        sidecar.refresh()

        assert (sidecar.version, sidecar.view().files) == (version, version + 2)


def test_a_header_ahead_of_the_mapping_maps_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(path)
    head = reader._Mapping.head
    commits = iter([1])

    def grow_first(mapping: reader._Mapping) -> int:
        for version in commits:
            append(path, version, ["c"])
        return head(mapping)

    monkeypatch.setattr(reader._Mapping, "head", grow_first)

    sidecar = Sidecar.open(path, TABLE_ID)
    assert (sidecar.version, set(state(sidecar.view()))) == (1, {"a", "b", "c"})


def test_a_footer_that_was_half_written_when_it_was_mapped_maps_again(path: Path) -> None:
    create(path)
    head = path.read_bytes()[HEAD_OFFSET:HEADER_BYTES]
    append(path, 1, ["c"])
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(len(whole) - 20)
        file.seek(HEAD_OFFSET)
        file.write(head)
    sidecar = Sidecar.open(path, TABLE_ID)
    assert sidecar.version == 0
    with path.open("r+b") as file:
        file.write(whole)

    sidecar.refresh()

    assert (sidecar.version, set(state(sidecar.view()))) == (1, {"a", "b", "c"})


def test_a_file_replaced_while_a_reader_catches_up_is_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(path)
    sidecar = Sidecar.open(path, TABLE_ID)
    append(path, 1, ["c"])
    head = reader._Mapping.head
    rewrites = iter([1])

    def replace_then_read(mapping: reader._Mapping) -> int:
        for _ in rewrites:
            writer.rewrite(LocalStorage(), path, TABLE_ID)
        return head(mapping)

    monkeypatch.setattr(reader._Mapping, "head", replace_then_read)

    sidecar.refresh()

    assert (sidecar.version, set(state(sidecar.view()))) == (1, {"a", "b", "c"})
    sidecar.refresh()
    assert sidecar.file_id == Sidecar.open(path, TABLE_ID).file_id


def test_a_view_stays_as_it_is_while_the_file_grows_and_is_replaced(path: Path) -> None:
    create(path)
    sidecar = Sidecar.open(path, TABLE_ID)
    view, before = sidecar.view(), state(sidecar.view())
    append(path, 1, ["c"], ["a"])
    sidecar.refresh()
    untouched = sidecar.view()
    create(path, ["z"], version=2)
    sidecar.refresh()
    sidecar.close()

    assert state(view) == before
    assert set(state(untouched)) == {"b", "c"}
    assert set(state(sidecar.view())) == {"z"}


def test_a_reader_and_the_next_writer_survive_a_failed_commit(path: Path) -> None:
    create(path)
    sidecar = Sidecar.open(path, TABLE_ID)
    for point in ("sidecar.append", "store.write", "store.sync", "sidecar.head", "store.patch"):
        store = FaultyStore(point, disk_full)
        with pytest.raises((LithifyError, OSError)):
            writer.append(store, path, TABLE_ID, 1, [sample_entry("c", 1)], ["a"], opened=sidecar)

        sidecar.refresh()

        assert (sidecar.version, set(state(sidecar.view()))) == (0, {"a", "b"})
    append(path, 1, ["d"])
    sidecar.refresh()
    assert set(state(sidecar.view())) == {"a", "b", "d"}


def test_a_reader_keeps_what_it_has_when_the_file_is_replaced_by_rubbish(path: Path) -> None:
    create(path)
    sidecar = Sidecar.open(path, TABLE_ID)
    before = state(sidecar.view())
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    LocalStorage().put(path, bytes(damaged))

    for _ in range(2):
        with pytest.raises(Corruption):
            sidecar.refresh()
        assert state(sidecar.view()) == before


def test_a_reader_notices_that_the_file_was_deleted(path: Path) -> None:
    create(path)
    sidecar = Sidecar.open(path, TABLE_ID)
    path.unlink()

    with pytest.raises(NotFound):
        sidecar.refresh()
    assert set(state(sidecar.view())) == {"a", "b"}


@pytest.mark.parametrize("act", ["blocks", "blocks again", "refresh", "view", "versions"])
def test_a_file_cut_under_its_mapping_is_noticed_before_it_is_touched(path: Path, folder: Path, act: str) -> None:
    create(path, ["x" * 8_000, "y" * 8_000])
    append(path, 1, ["b"])
    append(path, 2, ["c"])

    child = children.start(sidecar_writes.outlive_a_cut, str(path), 4096, act, scratch=folder)

    assert children.finish(child) == 0


def test_two_writers_wait_for_each_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(path)
    monkeypatch.setattr(writer, "LOCK_WAIT_S_MAX", 0)

    with LocalStorage().lock(path.with_name("base.pm.lock"), 0, "a test"), pytest.raises(Unavailable, match="lock"):
        append(path, 1, ["c"])

    append(path, 1, ["c"])
    assert read(path) == {"a", "b", "c"}


# -- what is refused, and what is not


def test_a_missing_file_is_not_found(path: Path) -> None:
    with pytest.raises(NotFound, match=r"base\.pm"):
        Sidecar.open(path, TABLE_ID)


@pytest.mark.parametrize("length", [0, 1, 63])
def test_a_file_without_a_whole_header_is_refused(folder: Path, length: int) -> None:
    (folder / "x.pm").write_bytes(bytes(length))

    with pytest.raises(Corruption, match=r"x\.pm"):
        Sidecar.open(folder / "x.pm", TABLE_ID)


def test_the_sidecar_of_another_table_is_refused_and_can_be_created_anew(path: Path) -> None:
    create(path)

    with pytest.raises(Corruption, match="another table"):
        Sidecar.open(path, OTHER_TABLE)
    with pytest.raises(Corruption, match="another table"):
        writer.append(LocalStorage(), path, OTHER_TABLE, 1, [], [])

    writer.create(LocalStorage(), path, OTHER_TABLE, 1, [sample_entry("z", 0)])
    assert set(state(Sidecar.open(path, OTHER_TABLE).view())) == {"z"}


def test_a_reader_whose_table_was_made_anew_refuses_the_new_sidecar(path: Path) -> None:
    create(path)
    sidecar = Sidecar.open(path, TABLE_ID)
    writer.create(LocalStorage(), path, OTHER_TABLE, 1, [])

    with pytest.raises(Corruption, match="another table"):
        sidecar.refresh()


@pytest.mark.parametrize("offset", [16, 64 + 40], ids=["header", "block"])
def test_an_unknown_required_feature_is_refused(folder: Path, offset: int) -> None:
    path = Path(shutil.copy(GOLDEN / "plain.pm", folder))
    patched(path, offset, "<Q", REQUIRED)

    with pytest.raises(Corruption, match=r"features.*0x10000000000"):
        state(Sidecar.open(path, TABLE_ID).view())


@pytest.mark.parametrize("offset", [16, 64 + 40], ids=["header", "block"])
def test_an_unknown_optional_feature_is_ignored(folder: Path, offset: int) -> None:
    path = Path(shutil.copy(GOLDEN / "plain.pm", folder))
    before = state(Sidecar.open(path, TABLE_ID).view())
    patched(path, offset, "<Q", OPTIONAL | TAGGED)

    assert state(Sidecar.open(path, TABLE_ID).view()) == before
    append(path, 8, ["b"])
    assert state(Sidecar.open(path, TABLE_ID).view()).keys() == {*before, "b"}


def test_a_file_of_an_older_time_is_refused_and_so_built_again(folder: Path) -> None:
    path = Path(shutil.copy(GOLDEN / "plain.pm", folder))
    patched(path, 16, "<Q", 0)

    with pytest.raises(Corruption, match="an older version of Lithify wrote it"):
        Sidecar.open(path, TABLE_ID)


def test_an_array_of_an_unknown_number_is_ignored(folder: Path) -> None:
    """The block's last array, `group raw bytes`, becomes one that a later version may define."""
    path = Path(shutil.copy(GOLDEN / "plain.pm", folder))
    before = parse(path.read_bytes()[64:0x330])
    patched(path, 0x268, "<B", 99)

    (live,) = Sidecar.open(path, TABLE_ID).view().blocks
    assert live.block.group_raw_bytes.tolist() == [0, 0]
    assert live.block.group_bytes.tolist() == before.group_bytes.tolist()


def test_a_column_of_an_unknown_kind_says_nothing_about_order(folder: Path) -> None:
    path = Path(shutil.copy(GOLDEN / "plain.pm", folder))
    patched(path, 0x70, "<B", 77)

    (live,) = Sidecar.open(path, TABLE_ID).view().blocks
    stats = live.block.stats("id")
    assert stats is None or stats.kind == 0


def test_another_version_of_the_format_is_refused(folder: Path) -> None:
    path = Path(shutil.copy(GOLDEN / "plain.pm", folder))
    patched(path, 8, "<I", 2)

    with pytest.raises(Corruption, match="version 2"):
        Sidecar.open(path, TABLE_ID)


# Offsets of plain.pm, as the example in docs/format.md shows them; checksums are right.
IMPOSSIBLE = {
    "header: reserved": (0x30, "<Q", 1),
    "block: length": (0x48, "<Q", 2**63),
    "block: length is that of another": (0x48, "<Q", 744),
    "block: head length": (0x50, "<I", 2**32 - 8),
    "block: files": (0x54, "<I", 2**32 - 1),
    "block: fewer files than it has row groups for": (0x54, "<I", 0),
    "block: groups": (0x58, "<I", 2**32 - 1),
    "block: most groups": (0x58, "<I", GROUPS_MAX),
    "block: one group more": (0x58, "<I", 3),
    "block: columns": (0x5C, "<I", 2**32 - 1),
    "block: most columns": (0x5C, "<I", COLUMNS_MAX),
    "block: arrays": (0x60, "<I", 2**32 - 1),
    "block: names length": (0x64, "<I", 2**32 - 1),
    "column: name length": (0x74, "<H", 2**16 - 1),
    "column: name that is no text": (0x80, "<B", 0xFF),
    "directory: out of order": (0x98, "<B", 0x20),
    "directory: impossible width": (0x99, "<B", 3),
    "directory: another width than it must have": (0x99, "<B", 4),
    "directory: place beyond the end": (0xA0, "<Q", 2**64 - 8),
    "directory: place in the head": (0xA0, "<Q", 8),
    "directory: place between the places": (0xA0, "<Q", 0x26A),
    "bounds: no heap": (0x1D9, "<B", 1),
    "bounds: longer than the block": (0x318, "<Q", 2**64 - 1),
    "bounds: longer than the block by one": (0x318, "<Q", 13 + 4),
    "bounds: shorter than their ends": (0x318, "<Q", 11),
    "bounds: ends go down": (0x311, "<B", 13),
    "paths: end beyond them": (0x1F0, "<Q", 15),
    "paths: end far beyond them": (0x1F0, "<Q", 2**64 - 1),
    "paths: no text": (0x280, "<B", 0xFF),
    "groups: end": (0x230, "<Q", 1),
    "groups: end far beyond": (0x230, "<Q", 2**32 + 2),
    "footer: length": (0x334, "<I", 2**32 - 8),
    "footer: version": (0x338, "<Q", 2**64 - 1),
    "footer: file id": (0x348, "<Q", 1),
    "footer: files": (0x350, "<Q", 2**64 - 1),
    "footer: groups": (0x358, "<Q", 3),
    "footer: blocks": (0x360, "<I", 2**32 - 1),
    "footer: flags": (0x364, "<I", 1),
    "footer: reserved": (0x368, "<Q", 1),
    "reference: place": (0x370, "<Q", 2**64 - 8),
    "reference: place in the header": (0x370, "<Q", 8),
    "reference: length": (0x378, "<Q", 2**64 - 1),
    "reference: mask beyond the footer": (0x380, "<Q", 0x338),
    "reference: mask": (0x380, "<Q", 2**64 - 1),
    "reference: live files": (0x388, "<I", 2**32 - 1),
    "reference: reserved": (0x394, "<I", 1),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_counts_and_places_are_refused(folder: Path, what: str) -> None:
    path = Path(shutil.copy(GOLDEN / "plain.pm", folder))
    patched(path, IMPOSSIBLE[what][0], *IMPOSSIBLE[what][1:])

    assert readable_states(path) == []


def test_the_most_row_groups_are_read() -> None:
    """All arrays constant: a block of a few hundred bytes may stand for millions of row groups."""
    block = bytearray(sample_entry("a", 0))
    (group_end,) = (offset for offset in range(0, len(block), 8) if block[offset : offset + 4] == b"\5\0\xff\xff")
    struct.pack_into("<I", block, 24, GROUPS_MAX)
    struct.pack_into("<Q", block, group_end + 8, GROUPS_MAX)

    found = parse(repaired(bytes(block)))

    stats = found.stats("id")
    assert stats is not None
    assert (len(stats.low), found.first_group.tolist()) == (GROUPS_MAX, [0, GROUPS_MAX])
    assert found.rows.tolist() == [6 * GROUPS_MAX]


def test_one_row_group_more_than_the_most_is_refused() -> None:
    block = bytearray(sample_entry("a", 0))
    struct.pack_into("<I", block, 24, GROUPS_MAX + 1)

    with pytest.raises(Corruption, match="sizes"):
        parse(repaired(bytes(block)))
