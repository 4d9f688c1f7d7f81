"""Log lines for what happened: in words for any handler, as facts for those that know them, never values of rows."""

from __future__ import annotations

import json
import logging
from typing import Any


def tell(logger: logging.Logger, event: str, *, level: int = logging.INFO, **facts: Any) -> None:
    if not logger.isEnabledFor(level):
        return
    told = {name: value for name, value in facts.items() if value not in (None, "")}
    words = "".join(f" {name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in told.items())
    logger.log(level, "%s%s", event, words, extra={"lithify_event": event, "lithify_facts": told})
