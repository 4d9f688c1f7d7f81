"""Doomed files: how vacuums and pins keep out of each other's way where a storage has no locks.

A vacuum writes down what it is about to delete, in a list `_lithify/doomed/<table>-<id>.json`, then reads the pins,
then deletes what none of them names. A pinner writes its pin, then reads the lists, and is refused if one of them names
a file of its. Whoever reads sees all that was written before, so of any list and any pin one is seen by the other's
owner. No clock is asked, and nobody waits for a lock.

A vacuum that seems dead may be asleep between its look at the pins and its deletes. So what is in a list stays doomed,
and can be pinned by nobody else, until it is gone: only the vacuum that wrote the list may take out what it found
pinned, since it will not delete that. The next vacuum takes over all lists that it finds, of the dead and the living
alike: first they stand in its own, then theirs go. It deletes what is not pinned, and leaves a list of what is, if it
was listed by others. Two vacuums at once delete the same files, which hurts neither.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import PurePath

from lithify.core.disk_files import lies_inside
from lithify.core.names import TableName
from lithify.errors import Corruption, NotFound, Unavailable
from lithify.tables.runtime import Runtime

LOOKS_MAX = 100
PAUSE_S = 0.1


@dataclass(frozen=True)
class Doomed:
    """What lists say, each file as `<changes or base>/<path>`."""

    lists: tuple[PurePath, ...] = ()
    files: frozenset[str] = frozenset()


def doomed_files(runtime: Runtime, name: TableName, table_id: str) -> Doomed:
    """A list that is gone when it is to be read may have been taken over into a younger one, so all are looked for
    again.
    """
    for _ in range(LOOKS_MAX):
        paths = _lists(runtime, name)
        try:
            found = [(path, _read(runtime, path)) for path in paths]
        except NotFound:
            continue
        # Those of a table that was dropped name nothing that could still be asked for.
        files = [path for _, (id, files) in found if id == table_id for path in files]
        return Doomed(tuple(paths), frozenset(files))
    raise Unavailable(f"the lists of vacuums of {name} change too fast to be read: try again")


def delete_listed(
    runtime: Runtime,
    name: TableName,
    table_id: str,
    going: AbstractSet[str],
    taken_over: Doomed,
    pinned: Callable[[], AbstractSet[str]],
    delete: Callable[[AbstractSet[str]], None],
) -> None:
    """Delete of `going` what is not `pinned`, which is asked once the list is written. `taken_over`: what others have
    listed, as far as it is still there and not `going` only for being pinned.
    """
    store, path = runtime.store, _folder(runtime) / f"{name}-{runtime.new_id()}.json"
    listed = going | taken_over.files

    def relist(files: AbstractSet[str]) -> None:
        """Unless somebody has taken the list over, with all that was in it."""
        change = _document(name, table_id, files, runtime.new_id())
        store.swap(
            path, lambda found: None if found is None else change, runtime.settings.lock_wait_s_max, f"vacuum of {name}"
        )

    if not listed:
        store.delete_all(taken_over.lists)
        return
    store.publish(path, _document(name, table_id, listed, runtime.new_id()))
    store.step("vacuum.doomed")
    store.delete_all(taken_over.lists)
    spared = listed & pinned()
    if spared - taken_over.files:
        relist(listed - (spared - taken_over.files))
    store.step("vacuum.spared")
    delete(going - spared)
    if left := taken_over.files - (going - spared):
        relist(left)
    else:
        store.delete(path)


def check_spared(
    runtime: Runtime, name: TableName, table_id: str, files: AbstractSet[str], check_present: Callable[[], None]
) -> None:
    """For a pin that is written: raise NotFound if a vacuum is about to delete one of its files. One that has come upon
    the pin in time takes them out of its list.
    """
    until_s = runtime.monotonic_s() + runtime.settings.lock_wait_s_max
    while going := files & doomed_files(runtime, name, table_id).files:
        check_present()
        if runtime.monotonic_s() >= until_s:
            raise NotFound(
                f"vacuum of {name} is removing files of this version, e.g. {min(going)}: it cannot be read any more; "
                "choose a later one"
            )
        runtime.pause(PAUSE_S)


def forget_lists(runtime: Runtime, name: TableName) -> None:
    """Of a dropped table."""
    runtime.store.delete_all(_lists(runtime, name))


def _document(name: TableName, table_id: str, files: Iterable[str], nonce: str) -> bytes:
    told = {"table": str(name), "table_id": table_id, "nonce": nonce, "files": sorted(files)}
    return json.dumps(told).encode()


def _read(runtime: Runtime, path: PurePath) -> tuple[str, list[str]]:
    try:
        told = json.loads(runtime.store.read(path))
        files = [str(file) for file in told["files"]]
        if not all(lies_inside(file) for file in files):
            raise ValueError("it names files outside of the table")
        return str(told["table_id"]), files
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(
            f"{path} cannot be read, and it may name any file that a vacuum is about to delete: remove it if no vacuum "
            "of this table is running, then try again"
        ) from error


def _lists(runtime: Runtime, name: TableName) -> list[PurePath]:
    folder = _folder(runtime)
    return [folder / entry for entry in runtime.store.names(folder) if entry.startswith(f"{name}-")]


def _folder(runtime: Runtime) -> PurePath:
    return runtime.control / "doomed"
