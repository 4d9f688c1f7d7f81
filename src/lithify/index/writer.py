"""Writing a sidecar: a new file as a whole, or a commit at the end of one that is there.

Nothing that a reader may look at is ever overwritten, but for the 8 aligned bytes of the header's head, and those only
after everything they lead to is durable. A writer that dies before that leaves bytes behind that nobody refers to.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from lithify.files.storage import Storage
from lithify.index.block import Block, parse, path_hash
from lithify.index.block_builder import merge
from lithify.index.format import (
    FOOTER,
    FOOTER_BYTES,
    FOOTER_END,
    FOOTER_MAGIC,
    HEAD_OFFSET,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    REFERENCE,
    TAGGED,
    VERSION,
    aligned,
    crc32,
    table_bytes,
)
from lithify.index.reader import LiveBlock, Sidecar

LOCK_WAIT_S_MAX = 2
MERGE_BLOCKS = 16
MERGE_GROUPS_MAX = 4_096
REWRITE_GROUPS_MAX = 65_536
BLOCKS_MAX = 512
DEAD_BYTES_MIN = 64 * 1024


@dataclass
class _Growing:
    """Bytes to be written from an offset on, and what the footer at their end will say."""

    offset: int
    parts: list[bytes] = field(default_factory=list)
    references: list[tuple[int, ...]] = field(default_factory=list)
    files: int = 0
    groups: int = 0

    def _put(self, data: bytes) -> int:
        offset = self.offset
        self.parts.append(data + bytes(-len(data) % 8))
        self.offset += len(self.parts[-1])
        return offset

    def add(self, data: bytes) -> None:
        """A new block, all of whose files are live."""
        block = parse(data)
        self.refer(self._put(data), block, np.broadcast_to(np.True_, block.files))

    def refer(self, offset: int, block: Block, live: npt.NDArray[np.bool_]) -> None:
        """A block that is in the file already."""
        mask = mask_crc = 0
        live_files = int(live.sum())
        if live_files < block.files:
            bits = np.packbits(live, bitorder="little").tobytes()
            mask, mask_crc = self._put(bits), crc32(bits)
        self.references.append((offset, block.length, mask, live_files, mask_crc, block.crc, 0))
        self.files += live_files
        self.groups += block.groups if live_files == block.files else int(live[block.file_of_group].sum())

    def finish(self, version: int, previous: int, file_id: int) -> int:
        """Add the footer; its offset."""
        references = np.array(self.references, REFERENCE).tobytes()
        length = FOOTER_BYTES + len(references) + 8
        counts = (self.files, self.groups, len(self.references), 0, 0)
        body = FOOTER.pack(FOOTER_MAGIC, length, version, previous, file_id, *counts) + references
        return self._put(body + crc32(body).to_bytes(4, "little") + FOOTER_END)


def create(store: Storage, path: PurePath, table_id: str, version: int, blocks: Iterable[bytes]) -> None:
    """A sidecar of these blocks, in place of the one that may be there."""
    with _locked(store, path):
        _create(store, path, table_id, version, blocks)


def append(
    store: Storage,
    path: PurePath,
    table_id: str,
    version: int,
    blocks: Sequence[bytes],
    removed: Collection[str],
    opened: Sidecar | None = None,
) -> None:
    """Add the blocks, take away the entries of the files that were removed, and those that the new ones replace. Raises
    as `Sidecar.open` does.

    `opened`: what the caller has open already, whose blocks need not be checked again.
    """
    with _locked(store, path):
        sidecar = Sidecar.open(path, table_id) if opened is None else opened.again()
        view = sidecar.view()
        replaced = (path for block in blocks for path in parse(block).paths.to_pylist())
        remaining = _without(view.blocks, {*removed, *replaced})
        growing = _Growing(aligned(store.size(path)))
        small = _to_merge(remaining, blocks)
        for live in remaining[: len(remaining) - small]:
            growing.refer(live.offset, live.block, live.live)
        if small:
            parts = [(live.block, live.live) for live in remaining[len(remaining) - small :]]
            growing.add(merge([*parts, *((parse(block), None) for block in blocks)]))
        else:
            for block in blocks:
                growing.add(block)
        footer = growing.finish(max(version, view.version), view.footer.offset, sidecar.file_id)
        store.step("sidecar.append")
        store.extend(path, growing.parts)
        store.step("sidecar.head")
        store.patch(path, HEAD_OFFSET, footer.to_bytes(8, "little"))


def rewrite(store: Storage, path: PurePath, table_id: str) -> None:
    """The live entries of the newest version, in a new file."""
    with _locked(store, path):
        view = Sidecar.open(path, table_id).view()
        _create(store, path, table_id, view.version, _repacked(view.blocks))


def worth_rewriting(sidecar: Sidecar) -> bool:
    """More than half of it is dead, unless that is next to nothing, or it has come apart into many blocks."""
    view = sidecar.view()
    return (view.dead_share > 0.5 and view.dead_bytes > DEAD_BYTES_MIN) or len(view.blocks) > BLOCKS_MAX


def _create(store: Storage, path: PurePath, table_id: str, version: int, blocks: Iterable[bytes]) -> None:
    file_id = secrets.randbits(64)
    growing = _Growing(HEADER_BYTES)
    for block in blocks:
        growing.add(block)
    footer = growing.finish(version, 0, file_id)
    start = HEADER.pack(MAGIC, VERSION, 0, TAGGED, table_bytes(table_id), file_id, 0, footer)
    crc = crc32(start[:12], start[16:HEAD_OFFSET])
    start = HEADER.pack(MAGIC, VERSION, crc, TAGGED, table_bytes(table_id), file_id, 0, footer)
    store.make_folder(path.parent)
    for name in store.names(path.parent):
        # Of a writer that died: whoever holds the lock is alone.
        if name.startswith(f".{path.name}."):
            store.delete(path.parent / name)
    store.step("sidecar.create")
    store.put(path, b"".join([start, *growing.parts]))


def _locked(store: Storage, path: PurePath) -> contextlib.AbstractContextManager[None]:
    store.make_folder(path.parent)
    return store.lock(path.with_name(f"{path.name}.lock"), LOCK_WAIT_S_MAX, f"the sidecar {path}")


def _without(blocks: Sequence[LiveBlock], removed: Collection[str]) -> list[LiveBlock]:
    hashes = np.array([path_hash(path) for path in removed], np.uint64)
    wanted = set(removed)
    remaining = []
    for found in blocks:
        gone = [file for file in found.block.files_hashed(hashes) if found.block.paths[file].as_py() in wanted]
        live = found.live
        if gone:
            live = live.copy()
            live[gone] = False
        if live.any():
            remaining.append(LiveBlock(found.offset, found.block, live))
    return remaining


def _to_merge(remaining: Sequence[LiveBlock], blocks: Sequence[bytes]) -> int:
    """How many of the last blocks to write again together with the new ones.

    Backwards, as long as each is no larger than all that was taken before it: so a row group is written again only when
    its block has about doubled, and there are never many small blocks.
    """
    if not blocks:
        return 0
    groups = sum(parse(block).groups for block in blocks)
    count = 0
    for live in reversed(remaining):
        if live.block.groups > groups or groups + live.block.groups > MERGE_GROUPS_MAX:
            break
        groups += live.block.groups
        count += 1
    return count if count >= MERGE_BLOCKS - 1 else 0


def _repacked(blocks: Sequence[LiveBlock]) -> Iterator[bytes]:
    batch: list[tuple[Block, npt.NDArray[np.bool_] | None]] = []
    groups = 0
    for found in blocks:
        if batch and groups + found.block.groups > REWRITE_GROUPS_MAX:
            yield merge(batch)
            batch, groups = [], 0
        batch.append((found.block, found.live))
        groups += found.block.groups
    if batch:
        yield merge(batch)
