"""Words for people: numbers with their nouns."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
