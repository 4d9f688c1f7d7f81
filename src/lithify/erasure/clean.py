"""What is kept beside a table's rows and may hold values of them: records set aside, and what jobs said of themselves.

Of the quarantine, lines that hold a needle, or are of a row with one of the keys, go. Of the journals goes what was
said about this table: an error may quote any value, and with the past cut off nothing there can be looked up any more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lithify.erasure.finder import Finder
from lithify.erasure.key_rows import Keys
from lithify.erasure.needles import Needle, spellings
from lithify.errors import NotFound
from lithify.tables.handles import Handles
from lithify.tables.runtime import Runtime
from lithify.write.quarantine import folder_of, parts_of, sets_aside

WAIT_S_MAX = 30.0
_FREE_TEXTS = ("reason", "error", "why", "problem", "detail", "message")


def clean_quarantine(handles: Handles, keys: Keys, needles: frozenset[Needle]) -> int:
    """How many records went."""
    finder = Finder({spelling for needle in needles for spelling in spellings(needle)})
    known = {tuple(map(str, row.values())) for row in keys.rows.to_pylist()}
    store, gone = handles.runtime.store, 0
    for found in sets_aside(handles):
        folder = folder_of(handles, found.name)
        for part in parts_of(store, folder):
            lines = store.read(folder / part).splitlines(keepends=True)
            kept = [line for line in lines if not finder.found(line) and not _is_of(line, keys.columns, known)]
            if len(kept) < len(lines):
                gone += len(lines) - len(kept)
                if kept:
                    store.put(folder / part, b"".join(kept))
                else:
                    store.delete(folder / part)
        if not parts_of(store, folder):
            store.delete_folder(folder)
        if store.exists(folder.parent):
            store.sync_folder(folder.parent)
    return gone


def _is_of(line: bytes, columns: tuple[str, ...], known: set[tuple[str, ...]]) -> bool:
    """Whether the record is a JSON object with one of the keys."""
    try:
        record = json.loads(json.loads(line)["record"])
        return tuple(str(record[name]) for name in columns) in known
    except (ValueError, KeyError, TypeError):
        return False


def clean_journals(runtime: Runtime, table: str, needles: frozenset[Needle]) -> int:
    """How many lines were changed or went: also of other tables, where they hold a needle."""
    store, folder, changed = runtime.store, runtime.control / "history", 0
    finder = Finder({spelling for needle in needles for spelling in spellings(needle)})

    def without(line: bytes) -> bytes | None:
        return None if finder.found(line) else _without(line, table)

    journals = [each / name for each in (folder, folder / "pipelines") for name in store.names(each)]
    for journal in journals:
        if journal.suffix != ".jsonl":
            continue
        before = _lines(store.read(journal)) if store.exists(journal) else []
        if [without(line) for line in before] == before:
            continue

        def cleaned(content: bytes | None) -> bytes | None:
            nonlocal changed
            lines = _lines(content or b"")
            kept = [without(line) for line in lines]
            changed += sum(line != after for line, after in zip(lines, kept, strict=True))
            return b"".join(line + b"\n" for line in kept if line is not None)

        try:
            store.swap(journal, cleaned, WAIT_S_MAX, f"cleaning {journal.name}")
        except NotFound:
            continue
    return changed


def _lines(content: bytes) -> list[bytes]:
    return [line for line in content.split(b"\n") if line]


def _without(line: bytes, table: str) -> bytes | None:
    """A line that is about the table goes; of one about several, what was said of it in free words."""
    try:
        said = json.loads(line)
    except ValueError:
        return None  # torn: nobody reads it either
    if not isinstance(said, dict):
        return None
    if said.get("table") == table:
        return None
    after = _stripped(said, table)
    return line if after == said else json.dumps(after).encode()


def _stripped(value: Any, table: str) -> Any:
    if isinstance(value, Mapping):
        about_it = value.get("table") == table
        return {
            name: _stripped(inner, table)
            for name, inner in value.items()
            if not (about_it and name in _FREE_TEXTS and isinstance(inner, str))
        }
    if isinstance(value, list):
        return [_stripped(inner, table) for inner in value if not (isinstance(inner, str) and table in inner)]
    return value
