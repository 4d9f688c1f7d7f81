"""Free bytes of a range: nothing is given twice, and what was given back can be had again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lithify.cache.extents import PAGE_BYTES, Extents, in_pages

PAGES = 16
# A size to take, or which of those taken is given back.
STEPS = st.lists(st.one_of(st.integers(0, 5 * PAGE_BYTES), st.integers(0, 20).map(lambda n: -n - 1)), max_size=60)


@given(STEPS)
def test_nothing_is_given_twice(steps: list[int]) -> None:
    extents, taken = Extents(PAGES * PAGE_BYTES), list[tuple[int, int]]()
    for step in steps:
        if step < 0:
            if taken:
                extents.give_back(*taken.pop(-step % len(taken)))
            continue
        start = extents.take(step)
        if start is None:
            free = sorted(set(range(PAGES)) - {page for begin, size in taken for page in _pages(begin, size)})
            assert not _has_run(free, in_pages(step) // PAGE_BYTES), "it would have fitted"
            continue
        taken.append((start, step))
        pages = [page for begin, size in taken for page in _pages(begin, size)]
        assert len(set(pages)) == len(pages)
        assert max(pages) < PAGES
    assert extents.free_bytes == PAGES * PAGE_BYTES - sum(in_pages(size) for _, size in taken)
    for one in taken:
        extents.give_back(*one)
    assert extents.is_empty
    assert extents.take(PAGES * PAGE_BYTES) == 0


def _pages(start: int, size_bytes: int) -> range:
    return range(start // PAGE_BYTES, (start + in_pages(size_bytes)) // PAGE_BYTES)


def _has_run(free: list[int], length: int) -> bool:
    return any(set(range(first, first + length)) <= set(free) for first in free)
