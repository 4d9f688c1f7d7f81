"""Where a path may lead, and the only way that trees are deleted.

A lake is opened as data: whoever filled its folder may have put links and paths like `../..` into it. Whoever opens it
trusts the folder that it named, the *root*, and nothing below. So a path is walked from its root, folder by folder,
each opened inside the one before and none of them through a link: what is then done to the last name happens in
exactly that folder, whatever is put in its place meanwhile. A link below a root, `..`, and a path below no root are
refused. What lies below a folder that is deleted is deleted in the same way, and a link in it goes as a link.

Engines that are given a path, to read from, walk it themselves. Files are therefore looked at before, level by level
(`PathGuard.check_files`); a link may then lead to a folder that the settings of the opener allow, and to no other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

from lithify.errors import Corruption, Unavailable
from lithify.files.os_errors import translated

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
LISTED_MIN = 1_000
_WALKED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class PathGuard:
    """What one opener trusts: `roots` that it named, and `allowed` folders that a lake may refer to besides.

    Without any root nothing is refused: the path is the caller's own word, and its folder is the root.
    """

    def __init__(self) -> None:
        self.roots: tuple[str, ...] = ()
        self.allowed: tuple[str, ...] = ()
        # Where data files really lie that a log names by links, by the folder of the log.
        self.linked: dict[str, frozenset[str]] = {}

    def trust(self, folder: PurePath) -> None:
        """A folder that the opener named itself. The longest root of a path counts."""
        if (text := str(folder)) not in self.roots:
            self.roots = tuple(sorted((*self.roots, text), key=len, reverse=True))

    def allow(self, folder: PurePath) -> None:
        if (text := os.path.realpath(folder)) not in self.allowed:
            self.allowed = (*self.allowed, text)

    def allows(self, path: PurePath | str) -> bool:
        """Whether it really lies in an allowed folder, whatever links lead there."""
        real = os.path.realpath(path)
        return any(real == folder or real.startswith(f"{folder.rstrip('/')}/") for folder in self.allowed)

    def followed(self, path: PurePath, levels: int) -> PurePath:
        """The last levels of a path may be links to allowed folders: then where it really lies, which is trusted."""
        folder = Path(path)
        for part in (folder, *folder.parents[: levels - 1]):
            if _is_link(str(part)) and self.allows(part):
                folder = Path(os.path.realpath(folder))
                self.trust(folder)
                break
        return folder

    def is_link(self, path: PurePath) -> bool:
        return _is_link(str(path))

    def split(self, path: PurePath | str) -> tuple[str, list[str]]:
        """The root of a path, and the names below it."""
        text = str(path)
        for root in self.roots:
            if text == root or text.startswith(f"{root.rstrip('/')}/"):
                break
        else:
            if any(root.startswith(f"{text.rstrip('/')}/") for root in self.roots):
                return text, []  # a folder on the way to a root, which may be made and synced with it
            if self.roots:
                raise Corruption(f"{text} lies outside of this lake, and no setting allows it: nothing was done there")
            root = os.path.dirname(text)
        names = [name for name in text[len(root) :].split("/") if name]
        if ".." in names or "\0" in text:
            raise Corruption(f"{text!r} leads out of its folder: nothing was done there")
        return root, names

    @contextlib.contextmanager
    def entry(self, path: PurePath | str) -> Iterator[tuple[int, str]]:
        """The open folder that holds the last name of a path, and that name."""
        root, names = self.split(path)
        at = os.open(root, _WALKED & ~os.O_NOFOLLOW)
        try:
            for number, name in enumerate(names[:-1]):
                at = _step(at, name, f"{root}/{'/'.join(names[: number + 1])}")
            yield at, names[-1] if names else "."
        except OSError as error:
            if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(str(path))):
                raise is_link(path) from error
            raise
        finally:
            os.close(at)

    def is_there(self, path: PurePath | str) -> bool:
        """Raises if it is a link."""
        with translated(path):
            try:
                found = os.lstat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            if stat.S_ISLNK(found.st_mode):
                raise is_link(path)
            return True

    def check_folder(self, folder: PurePath) -> None:
        """None of the folders from its root to this one, as far as they are there, is a link."""
        root, names = self.split(folder)
        here = root
        for name in names:
            here = f"{here}/{name}"
            if _is_link(here):
                raise is_link(here)

    def check_entries(self, folder: PurePath) -> None:
        """Nor is anything that lies in it."""
        self.check_folder(folder)
        with (
            translated(folder),
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                if entry.is_symlink():
                    raise is_link(entry.path)

    def check_tree(self, folder: PurePath) -> None:
        """Nor anything below it."""
        self.check_entries(folder)
        for at, folders, files in os.walk(folder):
            for name in (*folders, *files):
                if _is_link(f"{at}/{name}"):
                    raise is_link(f"{at}/{name}")

    def check_files(self, folder: PurePath, paths: Iterable[str]) -> None:
        """Files that a log names by their path below its folder: no level of it is a link out of allowed folders."""
        text, plain, linked, named = str(folder), set[str](), set[str](), list(paths)
        listings = _Listings(text, named)
        for path in named:
            links = False
            at = path.find("/")
            while at >= 0:
                if path[:at] not in plain:
                    links |= self._check_level(f"{text}/{path[:at]}")
                    plain.add(path[:at])
                at = path.find("/", at + 1)
            above, _, name = path.rpartition("/")
            if (found := listings.links(above)) is None:
                links |= self._check_level(f"{text}/{path}")
            elif name in found:
                links |= self._check_link(f"{text}/{path}")
            if links:
                linked.add(os.path.dirname(os.path.realpath(f"{text}/{path}")))
        if linked:
            self.linked[text] = self.linked.get(text, frozenset()) | linked

    def _check_level(self, path: str) -> bool:
        """Whether it is a link, to a folder that is allowed."""
        return _is_link(path) and self._check_link(path)

    def _check_link(self, path: str) -> bool:
        if not self.allows(path):
            raise is_link(path)
        return True


class _Listings:
    """The links in folders of which many files are asked for: to list such a folder takes less than to look at each."""

    def __init__(self, text: str, paths: Iterable[str]) -> None:
        asked = Counter(path.rpartition("/")[0] for path in paths)
        self._text, self._crowded = text, {above for above, count in asked.items() if count >= LISTED_MIN}
        self._found: dict[str, frozenset[str]] = {}

    def links(self, above: str) -> frozenset[str] | None:
        """Call it when the folder itself has been looked at. None: of few of its files anything is asked."""
        if above not in self._crowded:
            return None
        if above not in self._found:
            self._found[above] = _links_in(f"{self._text}/{above}")
        return self._found[above]


def _links_in(folder: str) -> frozenset[str]:
    with translated(folder):
        try:
            with os.scandir(folder) as entries:
                return frozenset(entry.name for entry in entries if entry.is_symlink())
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()


def _is_link(path: str) -> bool:
    with translated(path):
        try:
            return stat.S_ISLNK(os.lstat(path).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False


def _step(at: int, name: str, path: str) -> int:
    try:
        following = os.open(name, _WALKED, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR) and stat.S_ISLNK(os.lstat(name, dir_fd=at).st_mode):
            raise is_link(path) from error
        raise
    os.close(at)
    return following


def is_link(path: PurePath | str) -> Corruption:
    return Corruption(
        f"{path} is a link, and a lake is not followed out of its folder: put the file or folder itself there; a data "
        "file may also be a link to a place that the setting allowed_paths names"
    )


def not_allowed(path: PurePath | str, what: str) -> Unavailable:
    return Unavailable(
        f"{what} lies at {path}, outside of this lake, and only your own settings can allow that: set "
        f'LITHIFY_ALLOWED_PATHS={path}, or write allowed_paths = ["{path}"] into a file that you pass with --config or '
        "LITHIFY_CONFIG",
        path=str(path),
    )


def remove_tree(at: int, name: str) -> None:
    """Delete a folder inside of an open one, with all that is in it. A link goes as a link; nothing is followed."""
    try:
        folder = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        os.unlink(name, dir_fd=at)
        return
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for inner, is_folder in found:
            with contextlib.suppress(FileNotFoundError):
                if is_folder:
                    remove_tree(folder, inner)
                else:
                    os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=at)


def discard_tree(folder: PurePath) -> None:
    """Delete a folder that only saves time, as far as that is possible; also the folder it lies in is no link."""
    path_guard = PathGuard()
    path_guard.trust(folder.parent.parent)
    with contextlib.suppress(OSError, Corruption), path_guard.entry(folder) as (at, name):
        remove_tree(at, name)
