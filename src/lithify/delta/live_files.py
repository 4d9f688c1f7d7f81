"""The live files of one version of a log, made from those of the version before.

A log says much of every file, and turning that into Python takes long for many of them. A commit names few: the files
it leaves alone are taken over as they are, found in Arrow by path, size, time and number of rows. The bounds of every
column that was ever asked for are kept, so that who asks for less does not make the others pay again. All handles of
this process on a log share what one of them has made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.snapshot import DataFile
from lithify.delta.entries import data_files

_SAME = ("size_bytes", "modification_time", "num_records")


@dataclass(frozen=True, eq=False)
class LiveFiles:
    version: int
    bounds_of: tuple[str, ...]
    files: tuple[DataFile, ...]
    _told: pa.Table

    @classmethod
    def of(
        cls,
        version: int,
        actions: pa.Table,
        bounds_of: Sequence[str],
        known: LiveFiles | None,
        check: Callable[[Iterable[str]], None],
    ) -> LiveFiles:
        """`known`: of any version of the same log. `check` is told the paths of files that are not in there."""
        told = actions.select(["path", *_SAME]).combine_chunks()
        if known is None or not set(bounds_of) <= set(known.bounds_of):
            wider = tuple(dict.fromkeys((*(known.bounds_of if known else ()), *bounds_of)))
            files = tuple(data_files(actions, wider))
            check(file.path for file in files)
            return cls(version, wider, files, told)
        place = pc.index_in(told["path"], known._told["path"])
        before = known._told.take(place)
        same = place.is_valid()
        for name in _SAME:
            equal = pc.equal(told[name], before[name]).fill_null(False)
            same = pc.and_(same, pc.or_(equal, pc.and_(told[name].is_null(), before[name].is_null())))
        fresh = tuple(data_files(actions.filter(pc.invert(same)), known.bounds_of))
        check(file.path for file in fresh)
        new = iter(fresh)
        places = pc.if_else(same, place, -1).to_numpy().tolist()
        if places == list(range(len(known.files))):
            return cls(version, known.bounds_of, known.files, told)
        files = tuple(known.files[place] if place >= 0 else next(new) for place in places)
        return cls(version, known.bounds_of, files, told)

    def tells(self, version: int, bounds_of: Sequence[str]) -> bool:
        return self.version == version and set(bounds_of) <= set(self.bounds_of)


# By the log's place and its table's id: while a handle on it is open.
newest_known: WeakValueDictionary[tuple[PurePath, str], LiveFiles] = WeakValueDictionary()
