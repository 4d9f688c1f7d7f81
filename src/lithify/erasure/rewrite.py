"""Rewriting the past of a table without the rows that go: every version stays, as if they had never been in it.

Which files have such rows is known from the disk (`inventory.py`); which of them count is for the logs to say. A file
of a write or a fold up to the one that hid the rows is written anew without them (`file_without.py`). What was written
later is of rows that somebody has inserted since, and stays; a delete that came later goes, unless it ends such a row.

The new files come first, then the two passes over both logs, their archives and what tags keep of them (`edits.py`,
`delta/past.py`), then tags name the new files alone. Each file is replaced as a whole, and after each of them every
version can be read. All of it may be done again from the beginning: what is done already is found to be so. No vacuum
takes the new files meanwhile, which nobody names yet, nor the old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lithify.core.names import OP, SEQ
from lithify.core.ops import DELETES, Op
from lithify.delta.past import LogPast
from lithify.erasure.blockers import pins_on
from lithify.erasure.edits import Edits
from lithify.erasure.file_without import FileWithout, holds_any, path_without, write_without, written_before
from lithify.erasure.key_rows import Keys
from lithify.erasure.needles import Needle
from lithify.erasure.words import Words
from lithify.errors import Conflict, NotFound
from lithify.files.open_parquet import open_file, read_open
from lithify.files.parquet import Layout
from lithify.tables.handles import Handles
from lithify.tables.pins import vacuum_lock
from lithify.tables.tags import logs_of_tags, rename_files

LOGS = ("changes", "base")
# Who has begun to read a log before the first pass has read it before the second.
READERS_S = 0.5
LATE_COMMITS_ROUNDS_MAX = 5


def digest(label: str) -> str:
    """What stands for a path in the state of an erasure: it may hold a value, of a partition."""
    return blake2b(label.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Rewritten:
    """`files`: bytes of the old ones, each by its path below the name of its log, and once where it has two names.
    `replaced`: all of them, and whether there is a new one.
    """

    files: Mapping[str, int]
    replaced: Mapping[str, bool]
    commits: int = 0
    checkpoints: int = 0


@dataclass(frozen=True)
class _Named:
    """What the logs say of one file. `is_new`: it is of what was written after the rows were hidden."""

    is_new: bool
    op: Op = Op.UPSERT


class Rewriting:
    """`hits`: what the inventory found, by path below the name of its log. `keys`: of the rows that go. Without
    `hidden_seq`: what would go, if they were hidden now. `replaced`: what an earlier round has told, by `digest`.
    """

    def __init__(
        self,
        handles: Handles,
        id: str,
        hidden_seq: int | None,
        keys: pa.Table,
        hits: Sequence[str],
        replaced: Mapping[str, bool] | None = None,
    ) -> None:
        self._handles, self._runtime, self._store = handles, handles.runtime, handles.runtime.store
        self._id, self._hidden_seq, self._hits = id, hidden_seq, tuple(hits)
        self._key, self._keys, self._replaced = tuple(keys.column_names), keys, replaced or {}
        self._roots: dict[str, PurePath] = {"changes": handles.changes.log.path, "base": handles.base_folder}
        kept = logs_of_tags(handles)
        self._pasts = {
            log: LogPast(self._store, root, [folder / log for folder in kept]) for log, root in self._roots.items()
        }

    # -- what is there

    @cached_property
    def _named(self) -> dict[str, _Named]:
        """Every file that some version names, by its path below the name of its log."""
        hidden, found = self._hidden_seq, dict[str, _Named]()
        for named in self._pasts["changes"].named():
            stated = dict(named.add["partitionValues"])
            is_new = hidden is not None and int(stated.get(SEQ) or 0) > hidden
            found[f"changes/{unquote(named.add['path'])}"] = _Named(is_new, Op(stated.get(OP) or Op.UPSERT))
        # Base has been folded since, so the rows of its files are those of today.
        live = {file.path for file in self._handles.snapshot().base} if hidden is not None else set()
        for named in self._pasts["base"].named():
            path = unquote(named.add["path"])
            said = named.record.info.get("watermark") if named.record is not None else None
            is_new = path in live or (hidden is not None and isinstance(said, int) and said >= hidden)
            before = found.get(f"base/{path}")
            found[f"base/{path}"] = _Named(is_new or (before is not None and before.is_new))
        return found

    def inserted_since(self) -> pa.Table:
        """Those of the keys that stand in writes which came after the rows were hidden."""
        keys, there = Keys(self._key, self._keys), [self._keys.slice(0, 0)]
        for label, named in self._named.items():
            if named.is_new and label.startswith("changes/") and named.op not in DELETES:
                try:
                    path = self._path(label)
                    rows = read_open(open_file(path), path, list(self._key))
                except NotFound:
                    continue
                rows = rows.select(list(self._key)).cast(self._keys.schema)
                there.append(rows.filter(pc.fill_null(keys.mask(rows.combine_chunks()), False)))
        return pa.concat_tables(there)

    def _path(self, label: str) -> PurePath:
        log, _, path = label.partition("/")
        return self._roots[log] / path

    @cached_property
    def _going(self) -> list[tuple[str, Keys]]:
        """Files with rows that go, and the keys of these: named ones, and what nobody names."""
        return list(self._found())

    def _found(self) -> Iterator[tuple[str, Keys]]:
        again = Keys(self._key, self.inserted_since())
        ended = Keys(self._key, self._keys.filter(pc.invert(again.mask(self._keys.combine_chunks()))))
        for label in self._hits:
            named = self._named.get(label)
            if named is None or not named.is_new:
                yield label, Keys(self._key, self._keys)
            elif named.op in DELETES and self._is_there(label) and holds_any(ended, self._path(label)):
                yield label, ended

    def _is_there(self, label: str) -> bool:
        return self._store.exists(self._path(label))

    def foreseen(self) -> dict[str, int]:
        """Bytes of the files that would be written anew, once each."""
        sizes, seen = dict[str, int](), set[tuple[int, int]]()
        for label, _ in self._going:
            log, _, path = label.partition("/")
            file = self._store.look_at(self._roots[log], path) if label in self._named else None
            if file is not None and file.inode not in seen:
                seen.add(file.inode)
                sizes[label] = file.size_bytes
        return sizes

    def named_still(self) -> list[str]:
        """Files with rows that go, which some version names."""
        return [label for label, _ in self._going if label in self._named]

    def left(self) -> frozenset[str]:
        """Those that nobody names."""
        return frozenset(label for label, _ in self._going if label not in self._named)

    def blockers(self) -> tuple[str, ...]:
        return pins_on(self._handles, {label for label, _ in self._going})

    def check_can(self) -> None:
        for past in self._pasts.values():
            past.check_known()

    # -- doing

    def run(self, needles: frozenset[Needle]) -> Rewritten:
        with vacuum_lock(self._runtime, self._handles.name):
            self.check_can()
            for past in self._pasts.values():
                past.sweep(self._runtime.now_ms())
            sizes = self.foreseen()
            instead = self._written()
            self._store.step("rewrite.files")
            rename_files(self._handles, lambda log, path: self._both(instead, log, path))
            words = Words(needles)
            commits = self._each(instead, words, False, LogPast.edit_commits)
            self._store.step("rewrite.removed")
            if commits:
                self._runtime.pause(READERS_S)
            checkpoints = self._each(instead, words, True, LogPast.edit_checkpoints)
            for _ in range(LATE_COMMITS_ROUNDS_MAX):
                edited = self._each(instead, words, True, LogPast.edit_commits)
                commits += edited
                if not edited:
                    break
            self._store.step("rewrite.named")
            rename_files(self._handles, lambda log, path: self._new(instead, log, path))
        return Rewritten(sizes, {label: new.path is not None for label, new in instead.items()}, commits, checkpoints)

    def _each(
        self,
        instead: Mapping[str, FileWithout],
        words: Words,
        names: bool,
        edit: Callable[[LogPast, Any], int],
    ) -> int:
        done = 0
        for log, past in self._pasts.items():
            own = {label.partition("/")[2]: file for label, file in instead.items() if label.startswith(f"{log}/")}
            done += edit(past, Edits(self._store, self._roots[log], own, words, names=names))
        return done

    def _written(self) -> dict[str, FileWithout]:
        """The new files, by the labels of the old ones. Bytes with two names are written once."""
        layout, found = Layout.of(self._handles.changes.schema), dict[str, FileWithout]()
        by_inode: dict[tuple[int, int], tuple[str, FileWithout]] = {}
        for label, keys in self._going:
            log, _, path = label.partition("/")
            root, target = self._roots[log], path_without(path, self._id)
            file = self._store.look_at(root, path)
            if label not in self._named or file is None:
                before = written_before(self._store, root, target)
                if before is not None or label not in self._named:
                    found[label] = before or FileWithout(None)
                continue  # one that vacuum has taken since keeps its place
            first = by_inode.get(file.inode)
            if first is not None and first[1].path is not None and not self._store.exists(root / target):
                self._store.copy(self._path(first[0]), root / target)
                self._store.sync_folder((root / target).parent)
            done = write_without(self._store, root, path, target, keys, layout)
            if done.path is not None and done.path != target:
                raise Conflict(f"{root / target} was made by somebody else meanwhile: resume the erasure")
            found[label] = done
            by_inode.setdefault(file.inode, (f"{log}/{target}", done))
        return found | dict(self._named_late())

    def _named_late(self) -> Iterator[tuple[str, FileWithout]]:
        """Old files that went in an earlier round, and were named once more by a checkpoint that came after that."""
        for label in self._named:
            if (has_new := self._replaced.get(digest(label))) is None or self._is_there(label):
                continue
            log, _, path = label.partition("/")
            new = written_before(self._store, self._roots[log], path_without(path, self._id))
            if new is not None or not has_new:
                yield label, new or FileWithout(None)

    def _both(self, instead: Mapping[str, FileWithout], log: str, path: str) -> Sequence[str]:
        return (path, *(other for other in self._new(instead, log, path) if other != path))

    def _new(self, instead: Mapping[str, FileWithout], log: str, path: str) -> Sequence[str]:
        found = instead.get(f"{log}/{path}")
        if found is None:
            return (path,)
        return () if found.path is None else (found.path,)
