"""Texts without the lake's place on disk."""

from __future__ import annotations

from typing import Any

from lithify.core.json_out import jsonable
from lithify.lake.lake import Lake


def placeless(lake: Lake, document: Any) -> Any:
    """Paths inside the lake are told from its root."""
    root = str(lake.path)

    def told(value: Any) -> Any:
        match value:
            case str():
                return value.replace(f"{root}/", "").replace(root, "the lake")
            case dict():
                return {name: told(item) for name, item in value.items()}
            case list():
                return [told(item) for item in value]
        return value

    return told(jsonable(document))
