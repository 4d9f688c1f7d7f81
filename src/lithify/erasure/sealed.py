"""The keys and needles of an erasure while it runs: encrypted, in its folder, gone with the key at the end."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from lithify.erasure.needles import Needle
from lithify.erasure.records import Records
from lithify.erasure.secrets import new_key, sealed, unsealed
from lithify.errors import Corruption, NotFound

KEY, NEEDLES = "needles.key", "needles.sealed"


@dataclass(frozen=True)
class Sealed:
    keys: pa.Table
    needles: frozenset[Needle]
    key: bytes

    @classmethod
    def new(cls, keys: pa.Table, needles: Iterable[Needle]) -> Self:
        return cls(keys, frozenset(needles), new_key())

    @classmethod
    def of(cls, records: Records, id: str) -> Self:
        folder = records.path(id)
        try:
            key, content = records.store.read(folder / KEY), records.store.read(folder / NEEDLES)
        except NotFound as error:
            raise Corruption(
                f"what erasure {id} looks for is gone from {folder}: cancel it, and ask for it once more"
            ) from error
        said = unsealed(content, key, str(folder / NEEDLES))
        return cls(rows_of(said["keys"]), frozenset(Needle.parsed(each) for each in said["needles"]), key)

    def files(self) -> dict[str, bytes]:
        needles = sorted(self.needles, key=lambda needle: (needle.column, needle.text))
        document = {"keys": text_of_rows(self.keys), "needles": [needle.document() for needle in needles]}
        return {KEY: self.key, NEEDLES: sealed(document, self.key)}

    def with_needles(self, more: Iterable[Needle]) -> Self:
        return replace(self, needles=self.needles | frozenset(more))

    def save(self, records: Records, id: str) -> None:
        records.store.put(records.path(id) / NEEDLES, self.files()[NEEDLES], 0o600)


def forget(records: Records, id: str) -> None:
    """The key first: without it the rest says nothing."""
    folder = records.path(id)
    for name in (KEY, NEEDLES):
        records.store.delete(folder / name)
        records.store.sync_folder(folder)


def text_of_rows(rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return base64.b64encode(sink.getvalue()).decode()


def rows_of(text: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(text)) as stream:
        return stream.read_all()
