"""Which bytes of a range are free: whole pages are taken at the first place where they fit, and given back in any
order; neighbours that are free become one.
"""

from __future__ import annotations

from bisect import bisect_left

PAGE_BYTES = 4_096


def in_pages(size_bytes: int) -> int:
    """Rounded up to whole pages; nothing takes none."""
    return -(-max(size_bytes, 1) // PAGE_BYTES) * PAGE_BYTES


class Extents:
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = in_pages(size_bytes)
        self._starts = [0]
        self._ends = [self.size_bytes]

    @property
    def free_bytes(self) -> int:
        return sum(self._ends) - sum(self._starts)

    @property
    def is_empty(self) -> bool:
        """Whether all of it is free."""
        return self._starts == [0] and self._ends == [self.size_bytes]

    def take(self, size_bytes: int) -> int | None:
        """Where so many bytes, in whole pages, are the caller's from now on; None if they fit nowhere."""
        wanted = in_pages(size_bytes)
        for index, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            if end - start >= wanted:
                if end - start == wanted:
                    del self._starts[index], self._ends[index]
                else:
                    self._starts[index] = start + wanted
                return start
        return None

    def give_back(self, start: int, size_bytes: int) -> None:
        """What `take` has given."""
        end = start + in_pages(size_bytes)
        index = bisect_left(self._starts, start)
        before = index > 0 and self._ends[index - 1] == start
        after = index < len(self._starts) and self._starts[index] == end
        if before and after:
            self._ends[index - 1] = self._ends[index]
            del self._starts[index], self._ends[index]
        elif before:
            self._ends[index - 1] = end
        elif after:
            self._starts[index] = start
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)
