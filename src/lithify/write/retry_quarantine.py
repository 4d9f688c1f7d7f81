"""Records that were set aside are tried once more: the table may have got a column, another type, fewer expectations.

Those that fit by now are written in one commit, and then no longer set aside; the others stay as they are. It is done
once, wherever it dies: what will be left is written beside the records first, under the batch id of the commit. Whoever
finds that file later asks the log. If the commit is there, what is left takes the place of what was; if not, nothing
has happened yet.

Only records that are JSON objects can be tried. A line of CSV does not say which value belongs to which column. Bytes
that were no text are kept as \\xNN, which behind a backslash reads as a text that nobody has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import PurePath
from typing import NamedTuple

import pyarrow as pa

from lithify.core.results import Commit, RecordSetAside, Retried
from lithify.core.schema import TableSchema
from lithify.errors import InvalidRequest
from lithify.files.storage import Storage
from lithify.tables.handles import Handles
from lithify.text.json_lines import message_batch
from lithify.text.text_rows import UNDECODABLE, rows_wanted
from lithify.write.quarantine import PART, check_there, folder_of, lines_of, parts_of, record_of

BYTES_MAX = 256 * 2**20
RETRY = "retry-"
_NO_TEXT = "bytes that are no text in its encoding: load what it came from with the right one"
_NO_OBJECT = "no JSON object, which alone says what its values are: correct it where it came from, and load that"


class Door(NamedTuple):
    """How rows get into the table, once for each batch id, and the answer that a batch id had already got."""

    write: Callable[[pa.Table, str], Commit]
    before: Callable[[str], Commit | None]
    complete: bool  # rows that lack a column are refused


def retry(handles: Handles, name: str, door: Door) -> Retried:
    check_there(handles, name)
    store, folder = handles.runtime.store, folder_of(handles, name)
    if (done := _finished(handles, name, door)) is not None:
        return done
    lines = list(_bounded(handles, name))
    records = [record_of(line, handles, name) for line in lines]
    rows, left = _sorted_out(records, handles.schema(), door.complete)
    if not rows.num_rows:
        return Retried(name, 0, len(lines), why=_first(left))
    batch_id = f"quarantine-{blake2b(b''.join([name.encode(), *lines]), digest_size=16).hexdigest()}"
    kept = b"".join(lines[number] + b"\n" for number in sorted(left))
    store.put(folder / f"{RETRY}{batch_id}.json", kept)
    store.sync_folder(folder)
    store.step("quarantine.staged")
    commit = door.write(rows, batch_id)
    store.step("quarantine.committed")
    _settle(store, folder, f"{RETRY}{batch_id}.json")
    return Retried(name, len(lines) - len(left), len(left), commit.seq, _first(left))


def _first(left: dict[int, str]) -> str | None:
    return left[min(left)] if left else None


def _finished(handles: Handles, name: str, door: Door) -> Retried | None:
    """What an earlier attempt has come to, if its commit stands."""
    store, folder = handles.runtime.store, folder_of(handles, name)
    for staged in [each for each in store.names(folder) if each.startswith(RETRY)]:
        batch_id = staged.removeprefix(RETRY).removesuffix(".json")
        if (commit := door.before(batch_id)) is None:
            store.delete(folder / staged)
            continue
        before, left = sum(1 for _ in lines_of(handles, name)), store.read(folder / staged).count(b"\n")
        _settle(store, folder, staged)
        return Retried(name, max(before - left, 0), left, commit.seq)
    return None


def _settle(store: Storage, folder: PurePath, staged: str) -> None:
    """What is left takes the place of what was. The staged file goes last: until then this can be done again."""
    first = f"{PART}00000.json"
    if not store.exists(folder / staged):
        return  # another process, which retried the same records, has done it
    for part in parts_of(store, folder):
        if part != first:
            store.delete(folder / part)
    if store.size(folder / staged):
        store.sync_folder(folder)
        store.move(folder / staged, folder / first)
        return
    store.delete(folder / first)
    store.sync_folder(folder)
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
