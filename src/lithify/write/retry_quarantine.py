"""Records that were set aside are tried once more: the table may have got a column, another type, fewer expectations.

Those that fit by now are written in one commit, and then no longer set aside; the others stay as they are. It is done
once, wherever it dies, and however many try at a time. What will be left is written beside the records first, in a file
of this attempt's own, whose name says the batch id of the commit and a number. The id is that of the records, so that
of all attempts with them one is committed; and it is bound to the number, so that the log tells which. What is left of
that attempt, and of no other, takes the place of what was: by itself, or by whoever finds its file later.

Only records that are JSON objects can be tried. A line of CSV does not say which value belongs to which column. Bytes
that were no text are kept as \\xNN, which behind a backslash reads as a text that nobody has sent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import PurePath
from typing import NamedTuple

import pyarrow as pa

from lithify.core.results import Commit, RecordSetAside, Retried
from lithify.core.schema import TableSchema
from lithify.delta.batch_txns import BoundId
from lithify.errors import CommitUnknown, Conflict, Corruption, InvalidRequest, LithifyError, NotFound
from lithify.files.storage import Storage
from lithify.tables.handles import Handles
from lithify.text.json_lines import message_batch
from lithify.text.text_rows import UNDECODABLE, rows_wanted
from lithify.write.quarantine import (
    PART,
    ROUNDS_MAX,
    busy,
    check_there,
    folder_of,
    lines_of,
    parts_of,
    record_of,
    state_of,
)

logger = logging.getLogger(__name__)
BYTES_MAX = 256 * 2**20
_STAGED = re.compile(r"retry-(quarantine-[0-9a-f]{32})\.([0-9]{1,18})\.json")
_NO_TEXT = "bytes that are no text in its encoding: load what it came from with the right one"
_NO_OBJECT = "no JSON object, which alone says what its values are: correct it where it came from, and load that"


class Door(NamedTuple):
    """How rows get into the table, once for each batch id, and the answer that a batch id had already got."""

    write: Callable[[pa.Table, str], Commit]
    before: Callable[[str], Commit | None]
    complete: bool  # rows that lack a column are refused


def retry(handles: Handles, name: str, door: Door) -> Retried:
    store, folder = handles.runtime.store, folder_of(handles, name)
    for _ in range(ROUNDS_MAX):
        check_there(handles, name)
        before = state_of(store, folder)
        if (done := _finished(handles, name, door)) is not None:
            return done
        try:
            lines = list(_bounded(handles, name))
            records = [record_of(line, handles, name) for line in lines]
        except (Corruption, NotFound):
            if state_of(store, folder) == before:
                raise
            continue
        if state_of(store, folder) != before:
            continue  # another attempt took records out meanwhile: these may be some of before and some of after
        if (answer := _attempt(handles, name, door, lines, records)) is not None:
            return answer
    raise busy(handles, name)


def _attempt(
    handles: Handles, name: str, door: Door, lines: list[bytes], records: list[RecordSetAside]
) -> Retried | None:
    """None: another attempt with the same records was committed."""
    store, folder = handles.runtime.store, folder_of(handles, name)
    rows, left = _sorted_out(records, handles.schema(), door.complete)
    if not rows.num_rows:
        return Retried(name, 0, len(lines), why=_first(left))
    digest = blake2b(b"".join([name.encode(), *lines]), digest_size=16).hexdigest()
    batch_id = BoundId(f"quarantine-{digest}", int(handles.runtime.new_id()[:14], 16))
    staged = folder / f"retry-{batch_id}.{batch_id.fingerprint}.json"
    store.put(staged, b"".join(lines[number] + b"\n" for number in sorted(left)))
    store.sync_folder(folder)
    store.step("quarantine.staged")
    try:
        commit = door.write(rows, batch_id)
    except CommitUnknown:
        raise  # whoever comes next asks the log
    except LithifyError as error:
        _give_up(store, staged)
        if isinstance(error, Conflict) and _is_of_another(door, batch_id):
            return None
        raise
    store.step("quarantine.committed")
    try:
        _settle(store, folder, staged.name)
    except LithifyError as error:
        logger.warning(
            "records of %s were written to table %s and are still set aside, until they are tried once more, which "
            "writes none of them again: %s",
            folder,
            handles.name,
            error,
        )
    return Retried(name, len(lines) - len(left), len(left), commit.seq, _first(left))


def _is_of_another(door: Door, batch_id: BoundId) -> bool:
    """Whether the commit with this id is that of another attempt."""
    try:
        door.before(batch_id)
    except Conflict:
        return True
    return False


def _give_up(store: Storage, staged: PurePath) -> None:
    """Nothing was written: this says so already."""
    try:
        store.delete(staged)
    except LithifyError as error:
        logger.warning("%s stays until its records are gone, and counts for nothing: %s", staged, error)


def _first(left: dict[int, str]) -> str | None:
    return left[min(left)] if left else None


def _finished(handles: Handles, name: str, door: Door) -> Retried | None:
    """What an earlier attempt has come to, if its commit stands."""
    store, folder = handles.runtime.store, folder_of(handles, name)
    staged = [found for each in store.names(folder) if (found := _STAGED.fullmatch(each)) is not None]
    if staged:
        with handles.changes.log.lock:
            handles.changes.log.refresh()
    for each in staged:
        try:
            commit = door.before(BoundId(each[1], int(each[2])))
        except Conflict:
            _give_up(store, folder / each[0])  # another attempt with the same records was committed
            continue
        if commit is None:
            continue  # it may be under way
        try:
            before, left = sum(1 for _ in lines_of(handles, name)), store.read(folder / each[0]).count(b"\n")
        except NotFound:
            continue  # it is being settled by somebody else, who has told
        _settle(store, folder, each[0])
        return Retried(name, max(before - left, 0), left, commit.seq)
    return None


def _settle(store: Storage, folder: PurePath, staged: str) -> None:
    """What is left takes the place of what was. The staged file goes last: until then this can be done again."""
    first = f"{PART}00000.json"
    if not store.exists(folder / staged):
        return  # another process, which found it, has done it
    for part in parts_of(store, folder):
        if part != first:
            store.delete(folder / part)
    try:
        if store.size(folder / staged):
            store.sync_folder(folder)
            store.move(folder / staged, folder / first)
            return
        store.delete(folder / first)
        store.sync_folder(folder)
    except NotFound:
        return  # done meanwhile, or the records were purged
    store.delete_folder(folder)
    store.sync_folder(folder.parent)


def _bounded(handles: Handles, name: str) -> Iterator[bytes]:
    size = 0
    for line in lines_of(handles, name):
        size += len(line)
        if size > BYTES_MAX:
            raise InvalidRequest(
                f"{name} has more than {BYTES_MAX // 2**20} MiB of records, too many to try at once: correct what they "
                "came from, load that, and purge them"
            )
        yield line


def _sorted_out(records: list[RecordSetAside], schema: TableSchema, complete: bool) -> tuple[pa.Table, dict[int, str]]:
    """The rows that there are by now, and why which of the others are none."""
    left, texts = dict[int, str](), list[bytes | None]()
    for number, each in enumerate(records):
        if each.why.startswith(UNDECODABLE):
            left[number] = _NO_TEXT
        elif not each.record.lstrip().startswith("{"):
            left[number] = _NO_OBJECT
        texts.append(None if number in left else each.record.encode("utf-8", "surrogatepass"))
    batch = message_batch(texts, "quarantine", rows_wanted(schema, complete))
    for bad in batch.bad:
        left[(bad.line or 0) - 1] = bad.reason
    return batch.rows, left
