"""Objects as they were before an engine listed them by itself: what `read_proof.Marks` is for files of this machine.

Both looks ask the server for every object, many at a time. What has the same tag in both was there in between, as the
log names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lithify.errors import Corruption
from lithify.files.addresses import BucketPath
from lithify.files.bucket.storage import AT_ONCE, BucketStorage
from lithify.files.read_proof import Vanished, check_size


class ObjectMarks:
    def __init__(self, wanted: Sequence[tuple[str, int]]) -> None:
        """Paths with the sizes that the log tells. Raises if one is missing, or not what its log says."""
        self._wanted, self._store = wanted, BucketStorage()
        self._tags = self._look()

    def check(self) -> None:
        """Raises unless every object is there as it was."""
        for (path, _), before, after in zip(self._wanted, self._tags, self._look(), strict=True):
            if before != after:
                raise Corruption(f"{path} was written to while it was read: read again", path=path)

    def _look(self) -> list[str]:
        with ThreadPoolExecutor(min(AT_ONCE, max(len(self._wanted), 1))) as pool:
            return list(pool.map(self._tag, self._wanted))

    def _tag(self, wanted: tuple[str, int]) -> str:
        path, size_bytes = wanted
        if (found := self._store.seen(BucketPath(path))) is None:
            raise Vanished.at(path)
        check_size(path, found.size_bytes, size_bytes)
        return found.tag
