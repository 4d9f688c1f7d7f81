"""Words for people: numbers with their nouns, files by their names."""

from __future__ import annotations

from collections.abc import Sequence


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def file_names_have(files: Sequence[str]) -> str:
    """The beginning of a sentence about all of these files."""
    return f"{files[0]} has" if len(files) == 1 else f"{files[0]} and {len(files) - 1} more files have"
