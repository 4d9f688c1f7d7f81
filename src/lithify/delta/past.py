"""Making the files of a log say something else of the past, while anybody may read any version.

Another file takes the place of one that a log names. Readers put a version together from one checkpoint and the commits
after it, so each add comes from one place. First every commit that removes the old file removes the new one as well:
to readers who do not know it that is nothing. Then each add of the old one becomes an add of the new, in any order:
wherever a reader begins it meets one of the two, never both, and what ends the one ends the other. Commits go on
removing the old one, too: somebody may have opened a version that names it, and follow from there.

What is said instead is for an `Edit` to tell; here each file is read, and replaced as a whole if it says anything else
then, keeping its time, by which logs are trimmed and files vacuumed. A second time changes nothing. The same versions
may lie in several places: in the log, in its archive, and with tags.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lithify.delta.actions import CommitRecord, parse_record, spelled_objects
from lithify.delta.archive import LOCK_WAIT_S_MAX
from lithify.delta.checkpoint_parts import FOLDER as PARTS
from lithify.delta.commit_files import unreadable
from lithify.delta.folder import (
    ARCHIVE_FOLDER,
    CHECKPOINT_NAME,
    COMMIT_NAME,
    HINT,
    LOCK,
    LOG_FOLDER,
    checkpoint_name,
    hinted_checkpoint,
)
from lithify.delta.own_commits import ACTIONS
from lithify.delta.trim import TEMPORARY, TORN
from lithify.errors import Conflict, Corruption, NotFound
from lithify.files.open_parquet import open_bytes, read_open
from lithify.files.storage import Storage

UNDER_WAY_MS = 60_000
_SPARE = ".crc"  # checksums of versions and of files, which readers do without
# Checkpoints in parts or as JSON, several commits in one file, and commits that are on their way.
_FOREIGN = re.compile(r"\d{20}\.(?:checkpoint\..+\.json|\d{20}\.compacted\.json)")
_FOLDERS = (PARTS, "_staged_commits")


class Edit(Protocol):
    """What to say instead. The same object: it stays as it is."""

    def add(self, add: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """None: nothing."""

    def removes(self, remove: Mapping[str, Any], removed: Collection[str]) -> Sequence[Mapping[str, Any]]:
        """`removed`: the paths that the commit removes already."""

    def said(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a commit of ours says besides."""

    def concerns(self, path: str, stats: str | None) -> bool:
        """Whether it may say something else of a file in a checkpoint."""


@dataclass(frozen=True)
class Named:
    """An add, and the commit that made it; of a checkpoint it is not known any more."""

    add: Mapping[str, Any]
    record: CommitRecord | None


class LogPast:
    """The files of one log. `saved`: folders in which versions of it were kept (`DeltaLog.keep`)."""

    def __init__(self, store: Storage, table: PurePath, saved: Sequence[PurePath] = ()) -> None:
        self._store, self.table = store, table
        self._folders = (table / LOG_FOLDER, table / ARCHIVE_FOLDER, *(folder / LOG_FOLDER for folder in saved))

    def check_known(self) -> None:
        """Refuse what names files and cannot be written anew here: other writers may have put it there."""
        for folder in self._folders:
            for name in self._store.names(folder):
                if _FOREIGN.fullmatch(name) or (name in _FOLDERS and self._store.names(folder / name)):
                    raise Conflict(
                        f"{folder / name} was put there by another writer, and names files in a way that cannot be "
                        'written anew here: history="cut" does without it'
                    )

    def named(self) -> Iterator[Named]:
        """Every add that is told anywhere: of checkpoints first, then of commits, oldest first."""
        for folder in self._folders:
            for name in self._names(folder, CHECKPOINT_NAME):
                with contextlib.suppress(NotFound):
                    rows = self._checkpoint(folder / name)
                    if "add" in rows.column_names:
                        yield from (Named(add, None) for add in rows["add"].drop_null().to_pylist())
        for folder in self._folders:
            for name in self._names(folder, COMMIT_NAME):
                with contextlib.suppress(NotFound):
                    record = self._record(folder / name)
                    yield from (Named(add, record) for add in record.adds)

    def edit_commits(self, edit: Edit) -> int:
        """How many were replaced."""
        return self._edit(COMMIT_NAME, edit, _edited_commit)

    def edit_checkpoints(self, edit: Edit) -> int:
        edited = self._edit(CHECKPOINT_NAME, edit, _edited_checkpoint)
        for folder in self._folders:
            self._renew_hint(folder)
        return edited

    def sweep(self, now_ms: float) -> None:
        """What writes have left that were cut off, and checksums of what is about to change."""
        for folder in self._folders:
            for name in self._store.names(folder):
                cut_off = bool(TEMPORARY.fullmatch(name)) and now_ms - self._age(folder / name, now_ms) > UNDER_WAY_MS
                if TORN.fullmatch(name) or name.endswith(_SPARE) or cut_off:
                    self._store.delete(folder / name)

    def _age(self, path: PurePath, now_ms: float) -> float:
        return self._store.modified_ms(path) if self._store.exists(path) else now_ms

    # -- one file after the other

    def _edit(self, kind: Any, edit: Edit, edited: Any) -> int:
        store, done = self._store, 0
        live = self._folders[0]
        with store.lock(live / LOCK, LOCK_WAIT_S_MAX, f"rewriting {live}"):
            # The archive counts where a commit is in both, so it comes first.
            for folder in (*self._folders[1:], live):
                found = 0
                for name in self._names(folder, kind):
                    found += self._replaced(folder / name, edit, edited)
                if found:
                    store.sync_folder(folder)
                done += found
        return done

    def _replaced(self, path: PurePath, edit: Edit, edited: Any) -> bool:
        try:
            before = self._store.read(path)
        except NotFound:
            return False
        try:
            after = edited(before, edit, str(path))
        except (ValueError, KeyError, TypeError) as error:
            raise unreadable(path) from error
        if after is None:
            return False
        self._store.replace(path, after)
        return True

    def _names(self, folder: PurePath, kind: Any) -> list[str]:
        return [name for name in self._store.names(folder) if kind.fullmatch(name)]

    def _record(self, path: PurePath) -> CommitRecord:
        try:
            return parse_record(int(path.name[:20]), self._store.read(path))
        except ValueError as error:
            raise unreadable(path) from error

    def _checkpoint(self, path: PurePath) -> pa.Table:
        return _rows_of(self._store.read(path), str(path))

    def _renew_hint(self, folder: PurePath) -> None:
        """It says how large its checkpoint is."""
        store, path = self._store, folder / HINT
        version = hinted_checkpoint(folder, store)
        if version is None or not store.exists(folder / checkpoint_name(version)):
            return
        hint, size = json.loads(store.read(path)), store.size(folder / checkpoint_name(version))
        if hint.get("sizeInBytes", size) == size:
            return
        rows = self._checkpoint(folder / checkpoint_name(version))
        adds = len(rows["add"].drop_null())
        told = {"size": rows.num_rows, "sizeInBytes": size, "numOfAddFiles": adds}
        store.put(path, json.dumps({n: told.get(n, value) for n, value in hint.items() if n != "checksum"}).encode())


# -- commits


def _edited_commit(content: bytes, edit: Edit, name: str) -> bytes | None:
    """None: it says the same."""
    found = list(spelled_objects(content))
    removed = {str(action["remove"]["path"]) for action, _ in found if action.get("remove")}
    after: list[tuple[dict[str, Any], str | None]] = []
    for action, text in found:
        instead = list(_instead(action, edit, removed))
        after += [(said, text if said is action else None) for said in instead]
    if [said for said, _ in after] == [action for action, _ in found]:
        return None
    for said, _ in after:
        own = (said.get("commitInfo") or {}).get("lithify")
        if isinstance(own, dict) and own.get(ACTIONS, len(after)) != len(after):
            said["commitInfo"]["lithify"] = {**own, ACTIONS: len(after)}
    # What is counted is said anew; the others keep their spelling, to the letter.
    return "\n".join(_text(said) if text is None or said.get("commitInfo") else text for said, text in after).encode()


def _instead(action: dict[str, Any], edit: Edit, removed: Collection[str]) -> Iterator[dict[str, Any]]:
    match action:
        case {"add": dict() as add}:
            said = edit.add(add)
            if said is add:
                yield action
            elif said is not None:
                yield {"add": dict(said)}
        case {"remove": dict() as remove}:
            for said in edit.removes(remove, removed):
                yield action if said is remove else {"remove": dict(said)}
        case {"commitInfo": {"lithify": dict() as info} as commit}:
            said = edit.said(info)
            yield action if said is info else {"commitInfo": {**commit, "lithify": dict(said)}}
        case _:
            yield action


def _text(action: Mapping[str, Any]) -> str:
    # Raw UTF-8: deltalake misreads characters outside the basic plane when they are escaped.
    return json.dumps(action, ensure_ascii=False, separators=(",", ":"))


# -- checkpoints


def _rows_of(content: bytes, name: str) -> pa.Table:
    try:
        return read_open(open_bytes(content, name), name)
    except Corruption as error:
        raise Corruption(f"checkpoint {name} is not readable: restore it from a copy") from error


def _edited_checkpoint(content: bytes, edit: Edit, name: str) -> bytes | None:
    rows = _rows_of(content, name)
    changed: dict[int, dict[str, Any] | None] = {}
    for kind in ("add", "remove"):
        if kind not in rows.column_names:
            continue
        told = rows[kind].combine_chunks()
        paths, stats = (_told(told, field) for field in ("path", "stats"))
        for line in (number for number, path in enumerate(paths) if path is not None):
            if not edit.concerns(paths[line], stats[line]):
                continue
            before = rows.slice(line, 1).to_pylist()[0]
            after = edit.add(before["add"]) if kind == "add" else _still_removed(before["remove"], edit)
            if after is not before[kind]:
                changed[line] = None if after is None else {**before, kind: dict(after)}
    if not changed:
        return None
    kept = [said for said in changed.values() if said is not None]
    both = pa.concat_tables([rows, pa.Table.from_pylist(kept, schema=rows.schema)])
    places, behind = list[int](), rows.num_rows
    for line in range(rows.num_rows):
        if line not in changed:
            places.append(line)
        elif changed[line] is not None:
            places.append(behind)
            behind += 1
    buffer = io.BytesIO()
    pq.write_table(both.take(pa.array(places, pa.int64())), buffer, compression="zstd")
    return buffer.getvalue()


def _told(actions: pa.Array, field: str) -> list[Any]:
    if actions.type.get_field_index(field) < 0:
        return [None] * len(actions)
    found: list[Any] = pc.struct_field(actions, field).to_pylist()
    return found


def _still_removed(remove: Mapping[str, Any], edit: Edit) -> Mapping[str, Any] | None:
    """What a checkpoint says of files that were removed before ends nothing after it."""
    return next(iter(edit.removes(remove, {str(remove["path"])})), None)
