"""Paths as Spark takes them."""

from __future__ import annotations

import re

from lithify.files.addresses import BucketPath

_PATTERN = re.compile(r"[{}\[\]*?\\]")


def literal(path: str) -> str:
    """Spark takes a path for a pattern: what would be one in a name is escaped."""
    return _PATTERN.sub(r"\\\g<0>", path)


def s3a_path(path: str) -> str:
    """An object by the name that Hadoop's connector knows it by."""
    found = BucketPath(path)
    return f"s3a://{found.bucket}/{found.key}"
