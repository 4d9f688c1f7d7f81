"""Which folders outside of a lake this user has allowed it to refer to, by adopting a table that lies there.

The log of a lake names the base of an adopted table, and a lake is only data: somebody else may have written that name.
What the user allowed is therefore kept apart from every lake, in the user's own folder for settings, by the lake's real
path. Another user, or the same lake elsewhere, needs the setting `allowed_paths`.
"""

from __future__ import annotations

import json
import logging
from pathlib import PurePath

from lithify.errors import LithifyError, NotFound
from lithify.files.addresses import is_remote, path_of
from lithify.files.local import LocalStorage
from lithify.files.paths import not_allowed
from lithify.files.user_files import real_path
from lithify.settings_files import user_folder

logger = logging.getLogger(__name__)

FILE = "allowed.json"
LOCK_WAIT_S_MAX = 10.0


def remembered(lake: PurePath) -> list[PurePath]:
    try:
        return [path_of(folder) for folder in _read().get(_named(lake), ())]
    except LithifyError as error:
        logger.warning("what was allowed before is not known: %s", error)
        return []


def remember(lake: PurePath, folder: PurePath) -> None:
    """Where that cannot be written down, the next to open the lake is told what to set."""
    path, store, real = _path(), LocalStorage(), _named(lake)

    def with_folder(content: bytes | None) -> bytes | None:
        known = {} if content is None else _parsed(content)
        if str(folder) in known.setdefault(real, []):
            return None
        known[real].append(str(folder))
        return (json.dumps(known, indent=1) + "\n").encode()

    try:
        store.make_folder(path.parent, 0o700)
        store.swap(path, with_folder, LOCK_WAIT_S_MAX, "allowed folders", mode=0o600)
    except LithifyError as error:
        logger.warning("%s could not be written (%s): %s", path, error, not_allowed(folder, "the adopted table"))


def _named(lake: PurePath) -> str:
    return str(lake) if is_remote(lake) else real_path(lake)


def _read() -> dict[str, list[str]]:
    try:
        return _parsed(LocalStorage().read(_path()))
    except NotFound:
        return {}


def _parsed(content: bytes) -> dict[str, list[str]]:
    try:
        return {str(lake): [str(folder) for folder in folders] for lake, folders in json.loads(content).items()}
    except (ValueError, AttributeError, TypeError) as error:
        logger.warning("%s cannot be read (%s): what it allows is left out", _path(), error)
        return {}


def _path() -> PurePath:
    return user_folder() / FILE
