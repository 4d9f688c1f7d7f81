"""Settings that go with a lake, in a file in its control folder (`settings_files`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from lithify.errors import InvalidRequest, NotFound
from lithify.files.addresses import is_remote
from lithify.lake.internals import internals
from lithify.settings import Settings
from lithify.settings_files import IN_LAKE, OPENERS_ONLY, toml_value, with_setting

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
    values = {name: None if text is None else toml_value(text) for name, text in chosen.items()}

    def changed(before: bytes | None) -> bytes:
        text = (before or b"").decode()
        for name, value in values.items():
            text = with_setting(text, name, value)
        Settings.check_said(text)
        return text.encode()

    file = lake.path / IN_LAKE[0]
    store = internals(lake).runtime.store
    try:
        store.swap(file, changed, WAIT_S_MAX, "the settings of this lake", MODE)
    except NotFound as error:
        raise InvalidRequest(f"{lake.path} has no control folder: {error}") from error
    return file
