"""Looking for what was erased, in everything that lies in the lake's folder, in a process that knows nothing yet.

Three methods, each blind to something. *Cells*: every value of every Parquet file is decoded; keys are compared in key
columns, bounds in logs by column, texts as bytes. *Pages*: every page is decompressed and searched, also what no row
uses. *Bytes*: every file is searched as it lies there, and its name.

Values that other rows hold too say nothing, so the rows that stay are read first, and what they have is not looked for.
The key is: nobody else has it. What cannot be decoded is a problem, and a scan with a problem has failed: it never says
of a file that it was looked at when it was not. A file that goes away meanwhile is nobody's.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.disk_files import is_written_here
from lithify.core.json_out import parsed
from lithify.erasure.bounds import StatedValues
from lithify.erasure.finder import Finder
from lithify.erasure.key_rows import Keys
from lithify.erasure.needles import Needle, Spelling, spellings, text_of
from lithify.erasure.pages import pages
from lithify.errors import Corruption, LithifyError
from lithify.files.examine import examine
from lithify.files.open_parquet import open_bytes

PLACES_MAX = 1000
METHODS = ("cells", "pages", "bytes")
_PLAIN = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_float64)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


@dataclass
class Found:
    """What a scan says. `places`: where something was found, without what; `problems`: what could not be looked at."""

    files: int = 0
    bytes: int = 0
    places: list[dict[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    searched: int = 0
    too_short: int = 0
    shared: int = 0

    @property
    def clean(self) -> bool:
        return not self.places and not self.problems

    def add(self, path: str, method: str, column: str) -> None:
        place = {"path": path, "method": method, "column": column}
        if place not in self.places and len(self.places) < PLACES_MAX:
            self.places.append(place)


def scan(roots: Sequence[Path], table: Path, keys: Keys, needles: Iterable[Needle]) -> Found:
    """`table`: the folder of the table, in whose files of rows the key columns are compared. `keys`: without those
    that were inserted again.
    """
    return _Scan(roots, table, keys, frozenset(needles)).run()


class _Scan:
    def __init__(self, roots: Sequence[Path], table: Path, keys: Keys, needles: frozenset[Needle]) -> None:
        self._roots, self._table, self._keys, self._needles = roots, table, keys, needles
        self._found = Found()
        self._columns: dict[Spelling, str] = {}
        self._finder, self._stated = Finder(()), StatedValues(frozenset())
        self._unsafe: dict[str, LithifyError] = {}

    def run(self) -> Found:
        # Pages are told by what footers say of columns, which ends a process where these are damaged or encrypted.
        found = (str(path) for root in self._roots for path in self._files(root) if path.suffix == ".parquet")
        foreign = [(path, None) for path in found if not is_written_here(path)]
        self._unsafe = examine(foreign)
        free, bounded = self._not_shared()
        told = [*((n, False) for n in free), *((n, True) for n in bounded)]
        for needle, is_bounded in told:
            for spelling in spellings(needle, bounded=is_bounded):
                self._columns[spelling] = needle.column
        self._finder = Finder(self._columns)
        self._found.searched = sum(1 for needle, is_bounded in told if spellings(needle, bounded=is_bounded))
        self._found.too_short = len(told) - self._found.searched
        self._found.shared = len(self._needles) - len(told)
        for root in self._roots:
            for path in self._files(root):
                self._look(path, root)
        return self._found

    # -- what other rows hold too

    def _not_shared(self) -> tuple[frozenset[Needle], set[Needle]]:
        """What is to be looked for anywhere, and what only as a word of its own."""
        key = self._keys.columns if len(self._keys.columns) == 1 else ()
        rows = _Staying(self._needles)
        for path in self._files(self._table):
            if _is_rows(path) and (data := self._read(path, None)) is not None:
                self._rows_that_stay(path, data, rows)
        others = self._needles - rows.equal
        self._stated = StatedValues(others)
        words = {n for n in others & rows.inside if n.column in key or n not in rows.words}
        return others - rows.inside, words

    def _rows_that_stay(self, path: Path, data: bytes, rows: _Staying) -> None:
        try:
            file = open_bytes(data, str(path))
            for batch in file.iter_batches():
                others = batch
                if self._keys.stand_in(file):
                    others = batch.filter(pc.invert(pc.fill_null(self._keys.mask(batch), False)))
                rows.look(others)
        except (LithifyError, pa.ArrowException, OSError):
            return  # told when it is scanned

    # -- one file

    def _files(self, root: Path) -> Iterator[Path]:
        def unreadable(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                self._problem(f"{error.filename}: {error.strerror}")

        for folder, folders, names in os.walk(root, onerror=unreadable):
            for name in sorted((*names, *(f for f in folders if (Path(folder) / f).is_symlink()))):
                yield Path(folder) / name
            folders[:] = sorted(name for name in folders if not (Path(folder) / name).is_symlink())

    def _look(self, path: Path, root: Path) -> None:
        shown = str(path.relative_to(root.parent if root != self._roots[0] else root))
        if named := self._finder.found(os.fsencode(str(path.relative_to(root)))):
            self._note(f"{path.parent}/(its name is withheld)", "name", named)
            shown = str(path.parent)
        if (data := self._read(path, shown)) is None:
            return
        self._found.files += 1
        self._found.bytes += len(data)
        self._note(shown, "bytes", self._finder.found(data))
        try:
            self._decoded(path, shown, data)
        except (LithifyError, pa.ArrowException, OSError, ValueError, EOFError) as error:
            kind = f"{error.code}" if isinstance(error, LithifyError) else type(error).__name__
            self._problem(f"{shown} cannot be decoded ({kind})")

    def _read(self, path: Path, shown: str | None) -> bytes | None:
        """None: it is gone, or no file, or cannot be read, which is told where it is `shown`."""
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                self._problem(f"{shown} is a link or no file: what is behind it was not looked at", shown)
                return None
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._problem(f"{shown}: {error.strerror}", shown)
            return None

    def _decoded(self, path: Path, shown: str, data: bytes) -> None:
        inside = path.name.removeprefix(".")
        if (problem := self._unsafe.get(str(path))) is not None:
            raise problem
        if data[:4] == b"PAR1":
            self._parquet(path, shown, data)
        elif path.suffix == ".parquet" and not path.name.startswith("."):
            raise Corruption(f"{shown} is no Parquet file")
        elif path.suffix == ".gz":
            self._note(shown, "cells", self._finder.found(gzip.decompress(data)))
        elif data[:6] == b"ARROW1":
            with pa.ipc.open_file(pa.py_buffer(data)) as reader:
                for number in range(reader.num_record_batches):
                    self._texts(shown, reader.get_batch(number))
        elif ".json" in inside:
            for line in data.splitlines():
                self._stated_in(shown, parsed(line))

    def _parquet(self, path: Path, shown: str, data: bytes) -> None:
        file = open_bytes(data, shown)
        rows, is_own = _is_rows(path), path.is_relative_to(self._table)
        if rows and is_own and not self._keys.stand_in(file) and self._keys.rows.num_rows and file.metadata.num_rows:
            self._problem(f"{shown} has not all columns of the key: its rows cannot be told apart")
        for batch in file.iter_batches():
            if rows and is_own and self._keys.stand_in(file) and pc.any(self._keys.mask(batch)).as_py():
                self._found.add(shown, "cells", ", ".join(self._keys.columns))
            self._texts(shown, batch)
            if not rows:
                self._stated_in(shown, batch.to_pylist())
        for page in pages(data, file.metadata, shown):
            self._note(shown, "pages", self._finder.found(page))

    def _texts(self, shown: str, batch: pa.RecordBatch) -> None:
        for values in _text_arrays(batch):
            for spelling in self._finder.found(_buffer(values)):
                # Values lie in one buffer: what was found may be the end of one and the beginning of the next.
                if any(spelling.data in _bytes(value) for value in values.to_pylist() if value is not None):
                    self._note(shown, "cells", [spelling])

    def _stated_in(self, shown: str, actions: Any) -> None:
        for needle in self._stated.found(actions):
            self._found.add(shown, "cells", needle.column)

    def _note(self, shown: str, method: str, found: Iterable[Spelling]) -> None:
        for spelling in found:
            self._found.add(shown, method, self._columns[spelling])

    def _problem(self, text: str, shown: str | None = "") -> None:
        if shown is not None and text not in self._found.problems:
            self._found.problems.append(text)


class _Staying:
    """What of the needles the rows that stay have: as a value of the same column (`equal`), anywhere as a part of
    another text (`inside`), or as a word of its own (`words`).
    """

    def __init__(self, needles: Iterable[Needle]) -> None:
        self.equal: set[Needle] = set()
        self.inside: set[Needle] = set()
        self.words: set[Needle] = set()
        self._by_column: dict[str, dict[str, Needle]] = {}
        self._free: dict[Spelling, set[Needle]] = {}
        self._bounded: dict[Spelling, set[Needle]] = {}
        for needle in needles:
            self._by_column.setdefault(needle.column, {})[needle.text] = needle
            for spelling in spellings(needle):
                self._free.setdefault(spelling, set()).add(needle)
            for spelling in spellings(needle, bounded=True):
                self._bounded.setdefault(spelling, set()).add(needle)
        self._finder = Finder({*self._free, *self._bounded})

    def look(self, batch: pa.RecordBatch) -> None:
        for name, wanted in self._by_column.items():
            if name in batch.schema.names:
                self.equal |= {wanted[text] for text in _equal_texts(batch.column(name), wanted)}
        for values in _text_arrays(batch):
            for spelling in self._finder.found(_apart(values)):
                self.inside |= self._free.get(spelling, set())
                self.words |= self._bounded.get(spelling, set())


def _equal_texts(column: pa.Array, wanted: Mapping[str, Needle]) -> set[str]:
    """Which of the texts are those of values in the column."""
    found = set[str]()
    for leaves in _leaf_arrays(column):
        kind = leaves.type
        if any(is_plain(kind) for is_plain in _PLAIN):
            with contextlib.suppress(pa.ArrowInvalid):  # not all are of this kind: then each value is looked at
                leaves = leaves.filter(pc.is_in(leaves, value_set=pa.array(list(wanted), pa.string()).cast(kind)))
        distinct = (value for value in pc.unique(leaves).to_pylist() if value is not None)
        found.update(text for value in distinct if (text := text_of(value)) in wanted)
    return found


def _text_arrays(batch: pa.RecordBatch) -> Iterator[pa.Array]:
    for column in batch.columns:
        yield from (leaf for leaf in _leaf_arrays(column) if any(is_text(leaf.type) for is_text in _TEXTS))


def _leaf_arrays(values: pa.Array) -> Iterator[pa.Array]:
    kind = values.type
    if pa.types.is_dictionary(kind):
        yield from _leaf_arrays(values.dictionary)
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _leaf_arrays(values.field(number))
    elif pa.types.is_map(kind):
        yield from _leaf_arrays(values.keys)
        yield from _leaf_arrays(values.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaf_arrays(values.flatten())
    else:
        yield values


def _buffer(values: pa.Array) -> bytes:
    whole = pa.concat_arrays([values])  # a slice would bring the buffer of all
    data = whole.buffers()[2]
    return b"" if data is None else bytes(data)


def _apart(values: pa.Array) -> bytes:
    """Each value once, with a byte between them that is part of no word: what two make together is in neither."""
    return b"\0".join(_bytes(value) for value in pc.unique(values).to_pylist() if value is not None)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode(errors="surrogatepass")


def _is_rows(path: Path) -> bool:
    """Whether it holds rows of a table, and not what a log says of them."""
    return path.suffix == ".parquet" and ".checkpoint" not in path.name


def told(found: Found) -> Mapping[str, Any]:
    return found.__dict__
