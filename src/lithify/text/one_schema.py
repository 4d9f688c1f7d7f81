"""Messages that come with their schema come with the same one each time, and it is most of their text: it is read once.

A parser that has come to the end of equal beginnings is in the same state. So if a text begins as another one does up
to the value of its `payload`, what stands between there and its last brace has to be one value, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lithify.core import strict_json
from lithify.text.json_fields import repeating_lines, repeats

_PAYLOAD = re.compile(rb'"payload"[ \t\r\n]*:')
_FORM = ["schema", "payload"]
_TRIES_MAX = 8


def messages_of(texts: Sequence[bytes]) -> list[dict[str, Any]] | None:
    """What all texts say, if they are such messages and no field comes twice in one of them; None: it is not known."""
    if not texts or (found := _beginning(texts[0])) is None:
        return None
    begin, schema = found
    if not all(text.startswith(begin) and text.endswith(b"}") for text in texts):
        return None
    inner = [text[len(begin) : -1] for text in texts]
    try:
        payloads = strict_json.loads_all(inner)
    except strict_json.JSONDecodeError:
        return None
    if next(repeating_lines(inner, payloads), None) is not None:
        return None
    return [{"schema": schema, "payload": payload} for payload in payloads]


def _beginning(text: bytes) -> tuple[bytes, Any] | None:
    """Up to the value of the payload, and the schema before it."""
    if not text.startswith(b'{"schema"'):
        return None
    for mark, _ in zip(_PAYLOAD.finditer(text), range(_TRIES_MAX), strict=False):
        begin = text[: mark.end()]
        whole = begin + b"null}"
        try:
            message = strict_json.loads(whole)
        except strict_json.JSONDecodeError:
            continue  # it stands inside of something else
        if type(message) is dict and list(message) == _FORM and not repeats(whole, message):
            return begin, message["schema"]
    return None
