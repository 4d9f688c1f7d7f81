"""Where paths in a bucket may lead."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from lithify.core.disk_files import lies_inside
from lithify.errors import Corruption
from lithify.files.addresses import path_of
from lithify.files.paths import PathGuard


class BucketGuard(PathGuard):
    """Nothing in a bucket is a link; a path must not leave its roots all the same."""

    def allow(self, folder: PurePath) -> None:
        if (text := str(path_of(str(folder)))) not in self.allowed:
            self.allowed = (*self.allowed, text)

    def allows(self, path: PurePath | str) -> bool:
        text = str(path)
        return any(text == folder or text.startswith(f"{folder}/") for folder in self.allowed)

    def followed(self, path: PurePath, levels: int) -> PurePath:
        return path

    def is_link(self, path: PurePath) -> bool:
        return False

    def check_folder(self, folder: PurePath) -> None:
        self.split(folder)

    def check_entries(self, folder: PurePath) -> None:
        self.split(folder)

    def check_tree(self, folder: PurePath) -> None:
        self.split(folder)

    def check_files(self, folder: PurePath, paths: Iterable[str]) -> None:
        for path in paths:
            if not lies_inside(path):
                raise Corruption(f"{path!r} leads out of {folder}: nothing was read there")
