"""A lake's storage in a bucket, with something that happens at one of its steps."""

from __future__ import annotations

from collections.abc import Callable

from lithify.files.bucket.storage import BucketStorage


class InterruptedBucket(BucketStorage):
    """Each action happens once, the first time that its step is reached."""

    def __init__(self) -> None:
        self.actions: dict[str, Callable[[], object]] = {}
        self.happened: list[str] = []

    def step(self, name: str) -> None:
        if (action := self.actions.pop(name, None)) is not None:
            self.happened.append(name)
            action()
