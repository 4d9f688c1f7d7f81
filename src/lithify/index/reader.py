"""A sidecar, mapped into memory.

Every footer lists the blocks that count as of its Delta version and points to the footer before it; a snapshot of the
past walks back to its own. Bytes before the head never change and the file is never cut, so what a `View` shows stays
as it is however the file grows, and also when another file takes its name. A file that somebody else has cut is
noticed by its size, each time before its blocks are handed out: touching a mapping beyond the end of its file would
end the process.

A mapping needs no descriptor once it stands, and keeps none: a process may have any number of tables open. The kernel
counts mappings too, so a file that grows again and again is not held by the mapping of each of its lengths: after some,
its blocks are read from the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from lithify.errors import Corruption, NotFound
from lithify.files.mapped import identity_and_size, mapped
from lithify.index.block import Block
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
    check_features,
    crc32,
    table_bytes,
)

LENGTHS_MAX = 16  # mappings of one file at most, but for those that somebody else holds


@dataclass(frozen=True)
class Footer:
    offset: int
    length: int
    version: int
    previous: int
    files: int
    groups: int
    references: npt.NDArray[np.void]

    @property
    def end(self) -> int:
        return self.offset + self.length


@dataclass(frozen=True)
class LiveBlock:
    """A block and which of its files are live."""

    offset: int
    block: Block
    live: npt.NDArray[np.bool_]

    @property
    def groups(self) -> int:
        """Row groups of live files."""
        block = self.block
        return block.groups if bool(self.live.all()) else int(self.live[block.file_of_group].sum())


class _Mapping:
    """The bytes of one file, as long as it was when it was mapped."""

    def __init__(self, path: PurePath) -> None:
        self.path = path
        self.identity, self.data = mapped(path)
        if self.size < HEADER_BYTES:
            raise damaged(path, "it is shorter than its header")

    @property
    def size(self) -> int:
        return len(self.data)

    def check_whole(self) -> None:
        """A file that lost its name to another, or has none any more, is out of everybody's reach."""
        try:
            identity, size = identity_and_size(self.path)
        except NotFound:
            return
        if identity == self.identity and size < self.size:
            raise damaged(self.path, "it was cut while it was in use")

    def head(self) -> int:
        """As it is now: one aligned load of what another process writes as one."""
        return int(np.frombuffer(self.data, "<u8", 1, HEAD_OFFSET)[0])


class View:
    """The entries as of one footer. Valid for as long as it is held."""

    def __init__(self, mapping: _Mapping, footer: Footer, known: dict[tuple[int, int], Block]) -> None:
        self._mapping, self.footer, self._known = mapping, footer, known
        self.version, self.files, self.groups = footer.version, footer.files, footer.groups

    @property
    def blocks(self) -> tuple[LiveBlock, ...]:
        """Raises Corruption, here and when an array of a block is first used."""
        self._mapping.check_whole()
        return self._blocks

    @cached_property
    def _blocks(self) -> tuple[LiveBlock, ...]:
        found = tuple(self._live_blocks())
        files = sum(int(live.live.sum()) for live in found)
        groups = sum(live.groups for live in found)
        if (files, groups) != (self.files, self.groups):
            raise damaged(self._mapping.path, "its footer counts other files than its blocks hold")
        return found

    def _live_blocks(self) -> Iterator[LiveBlock]:
        path, data = self._mapping.path, self._mapping.data
        for offset, length, mask, live_files, mask_crc, block_crc, _ in self.footer.references.tolist():
            block = self._known.get((offset, block_crc))
            if block is None:
                block = Block(data[offset : offset + length], f"{path}, block at {offset},")
                if block.crc != block_crc:
                    raise damaged(path, f"the block at {offset} is not the one its footer names")
                self._known[offset, block_crc] = block
            if mask:
                size = (block.files + 7) // 8
                if mask + size > self.footer.offset or crc32(data[mask : mask + size]) != mask_crc:
                    raise damaged(path, f"the mask at {mask} does not match its checksum")
                bits = np.frombuffer(data, np.uint8, size, mask)
                live = np.unpackbits(bits, count=block.files, bitorder="little").astype(bool)
            else:
                live = np.broadcast_to(np.True_, block.files)
            if int(live.sum()) != live_files:
                raise damaged(path, f"the block at {offset} has another number of live files than its footer says")
            yield LiveBlock(offset, block, live)

    @cached_property
    def dead_bytes(self) -> int:
        live = HEADER_BYTES + self.footer.length
        for found in self.blocks:
            share = int(found.live.sum()) / found.block.files if found.block.files else 1
            live += int(found.block.length * share)
        live += sum((found.block.files + 7) // 8 for found in self.blocks if not found.live.all())
        return max(0, self.footer.end - live)

    @property
    def dead_share(self) -> float:
        return self.dead_bytes / self.footer.end


class Sidecar:
    """Open with `Sidecar.open`. Not for several threads at once; the views it hands out are."""

    def __init__(self, path: PurePath, table_id: str) -> None:
        self.path, self._table_id = path, table_id
        self._known: dict[tuple[int, int], Block] = {}
        self._lengths = 1
        self._map()

    @classmethod
    def open(cls, path: PurePath, table_id: str) -> Sidecar:
        """Raises NotFound if there is none, Corruption if it cannot be used: other table, damaged, too new."""
        return cls(path, table_id)

    def _map(self) -> None:
        mapping = _Mapping(self.path)
        magic, version, crc, features, table, file_id, reserved, _ = HEADER.unpack_from(mapping.data)
        if magic != MAGIC:
            raise damaged(self.path, "it does not begin like one")
        if crc32(mapping.data[:12], mapping.data[16:HEAD_OFFSET]) != crc or reserved:
            raise damaged(self.path, "its header does not match its checksum")
        if version != VERSION:
            raise Corruption(
                f"{self.path} is a sidecar of version {version}, not {VERSION} (it may be deleted, and is built again)"
            )
        check_features(features, str(self.path))
        if not features & TAGGED:
            raise damaged(self.path, "an older version of Lithify wrote it")
        if table != table_bytes(self._table_id):
            raise damaged(self.path, "it belongs to another table")
        before = dict(self.__dict__)
        if not hasattr(self, "file_id") or file_id != self.file_id:
            self._known = {}
        self.file_id: int = file_id
        self.features: int = features
        self._mapping = mapping
        try:
            self.head = self._footer(mapping.head())
        except BaseException:
            self.__dict__.update(before)  # it still shows the file that was there before
            raise

    def refresh(self) -> None:
        """Move to the newest footer, of the file that now stands at the path. Raises as `open` does."""
        if identity_and_size(self.path)[0] != self._mapping.identity:
            self._map()
            return
        self._mapping.check_whole()
        offset = self._mapping.head()
        try:
            if offset != self.head.offset:
                self.head = self._footer(offset)
        except _Replaced:
            self._map()
        self._forget_old_blocks()

    def again(self) -> Sidecar:
        """The file at the path, opened anew; blocks that were checked here are not checked again."""
        fresh = Sidecar(self.path, self._table_id)
        if fresh.file_id == self.file_id:
            fresh._known = dict(self._known)
        return fresh

    def _forget_old_blocks(self) -> None:
        listed = {(int(r["offset"]), int(r["block_crc"])) for r in self.head.references}
        if len(self._known) > 2 * len(listed) + 16:
            self._known = {key: block for key, block in self._known.items() if key in listed}

    @property
    def version(self) -> int:
        """The Delta version of the newest footer."""
        return self.head.version

    def view(self, version: int | None = None) -> View:
        """The entries as of the newest footer at or before a Delta version."""
        self._mapping.check_whole()
        footer = self.head
        while version is not None and footer.version > version:
            if not footer.previous:
                raise NotFound(f"{self.path} knows nothing as old as version {version}")
            footer = self._footer(footer.previous, footer.offset)
        return View(self._mapping, footer, self._known)

    def versions(self) -> list[int]:
        """Delta versions of the chain, newest first."""
        self._mapping.check_whole()
        footer, found = self.head, [self.head.version]
        while footer.previous:
            footer = self._footer(footer.previous, footer.offset)
            found.append(footer.version)
        return found

    def _footer(self, offset: int, before: int | None = None) -> Footer:
        if offset % 8 or offset < HEADER_BYTES or (before is not None and offset >= before):
            raise damaged(self.path, f"no footer can be at {offset}")
        if offset + FOOTER_BYTES > self._mapping.size:
            self._map_again()
        try:
            return self._checked_footer(offset)
        except _BeyondMapping:
            self._map_again()
            try:
                return self._checked_footer(offset)
            except _BeyondMapping:
                raise damaged(self.path, f"the footer at {offset} goes beyond its end") from None

    def _map_again(self) -> None:
        """The same file, which has grown. Blocks and views that are in use keep the old mapping."""
        mapping = _Mapping(self.path)
        if mapping.identity != self._mapping.identity:
            raise _Replaced(f"{self.path} was replaced while it was read: open it again")
        self._mapping = mapping
        self._lengths += 1
        if self._lengths > LENGTHS_MAX:
            self._known, self._lengths = {}, 1

    def _checked_footer(self, offset: int) -> Footer:
        data = self._mapping.data
        if offset + FOOTER_BYTES > len(data):
            raise _BeyondMapping
        magic, length, version, previous, file_id, files, groups, count, flags, reserved = FOOTER.unpack_from(
            data, offset
        )
        if magic != FOOTER_MAGIC or length != FOOTER_BYTES + count * REFERENCE.itemsize + 8:
            raise damaged(self.path, f"there is no footer at {offset}")
        if offset + length > len(data):
            raise _BeyondMapping
        body, end = data[offset : offset + length - 8], bytes(data[offset + length - 4 : offset + length])
        crc = int.from_bytes(data[offset + length - 8 : offset + length - 4], "little")
        if end != FOOTER_END or crc32(body) != crc:
            raise damaged(self.path, f"the footer at {offset} does not match its checksum")
        references = np.frombuffer(data, REFERENCE, count, offset + FOOTER_BYTES)
        blocks, lengths, masks = references["offset"], references["length"], references["mask"]
        sound = (
            file_id == self.file_id
            and not flags
            and not reserved
            and not references["reserved"].any()
            and (previous == 0 or (HEADER_BYTES <= previous < offset and previous % 8 == 0))
            and version < 2**63
            and bool((blocks >= HEADER_BYTES).all() and (blocks % 8 == 0).all())
            and bool((lengths <= offset).all() and (blocks <= offset - lengths).all())
            and bool(((masks == 0) | ((masks >= HEADER_BYTES) & (masks < offset))).all())
        )
        if not sound:
            raise damaged(self.path, f"the footer at {offset} makes no sense")
        return Footer(offset, length, version, previous, files, groups, references)

    def close(self) -> None:
        """Let go of the mapping, as soon as no view needs it."""
        self._known = {}


class _BeyondMapping(Exception):
    """The header is ahead of the mapping: the file has grown."""


class _Replaced(NotFound):
    """The file has grown beyond its mapping, and another one has its name now."""


def damaged(path: PurePath, why: str) -> Corruption:
    return Corruption(
        f"the sidecar {path} cannot be used: {why} (it may be deleted, and is built again)", path=str(path)
    )
