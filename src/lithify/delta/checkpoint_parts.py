"""Checkpoints of the newer kind name further files ("sidecars") by path, and deltalake goes wherever that leads.

They lie in a folder of the log, so their paths are plain names; a checkpoint that says otherwise is refused before
deltalake opens the table. Lithify writes none; a table that is adopted may have them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from urllib.parse import unquote

from lithify.errors import Corruption, NotFound
from lithify.files.open_parquet import open_file, read_open
from lithify.files.storage import Storage

FOLDER = "_sidecars"
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint\.(?:.*\.)?(parquet|json)")
_CHECKED_MAX = 10_000
# What was looked at before, by path, size and time of change: a checkpoint never changes once it is there.
_checked: set[tuple[str, int, float]] = set()


def check_checkpoint_parts(log: PurePath, store: Storage) -> None:
    store.path_guard.check_entries(log / FOLDER)
    for name in store.names(log):
        found = _CHECKPOINT.fullmatch(name)
        if found is None:
            continue
        path = log / name
        try:
            seen = (str(path), store.size(path), store.modified_ms(path))
            if seen in _checked:
                continue
            named = list(_in_json(store.read(path)) if found[1] == "json" else _in_parquet(path))
        except NotFound:
            continue
        for sidecar in named:
            if not isinstance(sidecar, str) or not _is_name(sidecar):
                raise Corruption(
                    f"checkpoint {path} names the file {sidecar!r}, which is not in its log: restore it from a copy"
                )
        if len(_checked) >= _CHECKED_MAX:
            _checked.clear()
        _checked.add(seen)


def _is_name(path: str) -> bool:
    return all("/" not in text and ":" not in text and text not in ("", ".", "..") for text in (path, unquote(path)))


def _in_parquet(path: PurePath) -> Iterator[object]:
    try:
        file = open_file(path)
        columns = file.schema_arrow.names.count("sidecar")
        if columns > 1:
            yield "sidecar: a column that is there twice"
        elif columns:
            for found in read_open(file, path, ["sidecar"]).column("sidecar").drop_null().to_pylist():
                yield found.get("path")
    except Corruption:
        return  # torn: whoever opens the log sets it aside


def _in_json(content: bytes) -> Iterator[object]:
    for line in content.splitlines():
        try:
            action = json.loads(line)
        except ValueError:
            return
        if isinstance(action, dict) and isinstance(action.get("sidecar"), dict):
            yield action["sidecar"].get("path")
