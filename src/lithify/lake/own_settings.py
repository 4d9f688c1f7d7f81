"""Settings that go with a lake, in a file in its control folder (`settings_files`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from lithify.errors import InvalidRequest, NotFound, did_you_mean
from lithify.files.addresses import is_remote
from lithify.lake.internals import internals
from lithify.pipelines.entries import declared_entries
from lithify.settings import Settings
from lithify.settings_files import IN_LAKE, OPENERS_ONLY, check_trusted, text_value, toml_value, with_setting

if TYPE_CHECKING:
    from lithify.lake.lake import Lake

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
            tomllib.loads(text)
        except ValueError as error:
            raise InvalidRequest(f"{file} is no TOML ({error}): correct it by hand first") from error
        for name, value in chosen.items():
            text = _changed(text, name, value)
        return text.encode()

    store = internals(lake).runtime.store
    try:
        store.swap(file, changed, WAIT_S_MAX, "the settings of this lake", MODE)
    except NotFound as error:
        raise InvalidRequest(f"{lake.path} has no control folder: {error}") from error
    return file


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
