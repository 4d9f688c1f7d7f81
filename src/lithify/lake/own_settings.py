"""Settings that go with a lake, in a file in its control folder (`settings_files`).

What this user has written there is remembered by a hash, before it is written: a file with another one came from
elsewhere, and what it says of programs and machines does not count, nor is it taken over by the next change.
"""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from lithify.errors import InvalidRequest, LithifyError, NotFound, did_you_mean
from lithify.files.addresses import is_remote
from lithify.files.local import LocalStorage
from lithify.files.user_files import real_path
from lithify.lake.internals import internals
from lithify.pipelines.entries import declared_entries
from lithify.settings import Settings
from lithify.settings_files import (
    IN_LAKE,
    OPENERS_ONLY,
    check_trusted,
    harmless,
    hash_of,
    is_recorded,
    record_file,
    recorded,
    text_value,
    toml_value,
    with_setting,
)

if TYPE_CHECKING:
    from lithify.lake.lake import Lake

logger = logging.getLogger(__name__)

MODE = 0o644
WAIT_S_MAX = 10.0


def change_settings(lake: Lake, chosen: Mapping[str, str | None]) -> PurePath:
    """Set some, or take them away (None); the file. What does not hold is refused before anything is written."""
    if is_remote(lake.path):
        raise InvalidRequest(
            "a bucket cannot say whose a file is, so no settings are read from one: use --config, LITHIFY_CONFIG or "
            "LITHIFY_* variables"
        )
    if openers := sorted(OPENERS_ONLY & set(chosen)):
        raise InvalidRequest(f"{', '.join(openers)}: a lake cannot say that of itself; set it where the lake is opened")
    for name, text in chosen.items():
        if name not in Settings.model_fields:
            hint = did_you_mean(name, Settings.model_fields) or "`lithify settings --all` lists them"
            raise InvalidRequest(f"there is no setting {name!r}: {hint}")
        if text is not None and not text.isprintable():
            raise InvalidRequest(f"setting {name!r}: a value is one line of text without control characters")
    file = lake.path / IN_LAKE[0]

    def changed(before: bytes | None) -> bytes:
        check_trusted(file)
        try:
            text = (before or b"").decode()
            said = tomllib.loads(text)
        except ValueError as error:
            raise InvalidRequest(f"{file} is no TOML ({error}): correct it by hand first") from error
        _check_ours(file, before, {name: value for name, value in said.items() if name not in chosen})
        for name, value in chosen.items():
            text = _changed(text, name, value)
        _record(file, before, text.encode())
        return text.encode()

    store = internals(lake).runtime.store
    try:
        store.swap(file, changed, WAIT_S_MAX, "the settings of this lake", MODE)
    except NotFound as error:
        raise InvalidRequest(f"{lake.path} has no control folder: {error}") from error
    return file


def accept_settings(lake: Lake) -> dict[PurePath, list[str]]:
    """Take the lake's own files as they are now, because this user has looked into them: what each of them may say by
    that, and could not before.
    """
    accepted = {}
    for file in map(lake.path.joinpath, IN_LAKE):
        try:
            content = LocalStorage().read(file)
        except NotFound:
            continue
        check_trusted(file)
        try:
            _, reasons = harmless(tomllib.loads(content.decode()))
        except ValueError as error:
            raise InvalidRequest(f"{file} is no TOML ({error}): correct it by hand first") from error
        _record(file, content, content)
        accepted[file] = [reason for name, reason in reasons.items() if name not in OPENERS_ONLY]
    if not accepted:
        raise InvalidRequest(f"{lake.path} has no settings of its own: `lithify set --lake PATH NAME=VALUE` makes some")
    return accepted


def _check_ours(file: PurePath, before: bytes | None, staying: Mapping[str, object]) -> None:
    _, reasons = harmless({name: value for name, value in staying.items() if name not in OPENERS_ONLY})
    if before is not None and reasons and not is_recorded(file, before):
        raise InvalidRequest(
            f"{file} was not written by `lithify set` of yours as it is, and says {'; '.join(reasons.values())}: look "
            "into it; if it is meant, pass --as-it-is first, else set these too, or take them away (NAME=default)"
        )


def _record(file: PurePath, before: bytes | None, after: bytes) -> None:
    """That this user writes it. What stands there until then stays known."""
    path, store, real = record_file(), LocalStorage(), real_path(file)

    def with_file(content: bytes | None) -> bytes:
        known = {} if content is None else recorded(content)
        old = [] if before is None else [hash_of(before)]
        known[real] = [hash_of(after), *(hash for hash in old if hash in known.get(real, ()))]
        return (json.dumps(known, indent=1) + "\n").encode()

    try:
        store.make_folder(path.parent, 0o700)
        store.swap(path, with_file, WAIT_S_MAX, "settings of lakes", mode=0o600)
    except LithifyError as error:
        logger.warning(
            "%s could not be written (%s): of %s, only settings count that can do no harm", path, error, file
        )


def _changed(text: str, name: str, value: str | None) -> str:
    """As TOML reads what was typed, or else as text: 2048 may be an amount of memory, and 640 a mode."""
    if value is None:
        after = with_setting(text, name, None)
        Settings.check_said(after)
        return after
    try:
        after = with_setting(text, name, toml_value(value))
        Settings.check_said(after)
    except InvalidRequest:
        after = with_setting(text, name, text_value(value))
        Settings.check_said(after)
    if name in ("pipelines", "streams"):
        said = tomllib.loads(after)
        declared_entries(Settings(pipelines=said.get("pipelines", {}), streams=said.get("streams", {})))
    return after
