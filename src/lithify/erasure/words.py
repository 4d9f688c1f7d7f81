"""Whether what a log says names a needle: by its bytes, by what it states of columns, or as a word of a free text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lithify.core.json_out import parsed
from lithify.erasure.bounds import StatedValues
from lithify.erasure.finder import Finder
from lithify.erasure.needles import Needle, spellings

# In a commit's `lithify`: what users wrote, and what is told of rows in words.
_FREE, _COUNTED = ("reason", "condition"), ("detail", "column")


class Words:
    def __init__(self, needles: Iterable[Needle]) -> None:
        known = frozenset(needles)
        self._finder = Finder({spelling for needle in known for spelling in spellings(needle)})
        self._stated = StatedValues(known)
        texts = sorted({re.escape(needle.text) for needle in known if len(needle.text) > 1}, key=len, reverse=True)
        self._word = re.compile(rf"(?<!\w)(?:{'|'.join(texts)})(?!\w)", re.IGNORECASE) if texts else None

    def stand_in(self, text: str) -> bool:
        return bool(self._finder.found(text.encode(errors="surrogatepass")))

    def are_stated(self, stats: str | None) -> bool:
        """In the statistics of a file."""
        return bool(stats) and (self.stand_in(str(stats)) or any(self._stated.found({"stats": stats})))

    def blanked(self, info: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a commit says, without free texts that name one; the same object where none does."""
        gone = [name for name in (*_FREE, *_COUNTED) if isinstance(info.get(name), str) and self._names(name, info)]
        writes = info.get("writes")
        blanked = [self.blanked(write) if isinstance(write, dict) else write for write in writes or ()]
        unmoved = not writes or all(after is before for after, before in zip(blanked, writes, strict=True))
        if not gone and unmoved:
            return info
        rest = {name: value for name, value in info.items() if name not in gone}
        return rest if unmoved else {**rest, "writes": blanked}

    def _names(self, name: str, info: Mapping[str, Any]) -> bool:
        is_word = name in _FREE and self._word is not None and self._word.search(info[name]) is not None
        return is_word or self.stand_in(info[name])


def without_bounds(stats: str) -> str:
    """Statistics of a file that say how many rows and nulls it has, and nothing of values."""
    said = parsed(stats)
    if not isinstance(said, dict) or not (said.get("minValues") or said.get("maxValues")):
        return stats
    kept = {name: value for name, value in said.items() if name not in ("minValues", "maxValues")}
    return json.dumps({**kept, "minValues": {}, "maxValues": {}}, ensure_ascii=False)
