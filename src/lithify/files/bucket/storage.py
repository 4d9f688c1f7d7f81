"""Storage in a bucket of an object store that speaks S3, through obstore.

A put is whole or not there, and lasts once it is answered; there are no folders, links or locks, and nothing grows.
What decides between writers is the condition of a put: that there is no object of the name (`create`), or that it is
still the one that was read (`swap`).

An answer can get lost after the server has done what it was asked. So every object carries the marks of the puts that
made it what it is (`marks`): after any doubt the same put goes out again, to the same name and under the same
condition, until the server answers. Then either it is done now, or the marks tell whether it was done before. What is
not known at the deadline is told as such; nobody moves on in doubt. S3 also answers 409 where two puts of one name meet
and none of them may be done, which looks like an object that exists where nothing is: that is no answer either.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

import obstore

from lithify.core.disk_files import DiskFile, is_small_write, lies_inside
from lithify.core.names import is_job_folder
from lithify.errors import Corruption, LithifyError, NotFound, Unavailable
from lithify.files.addresses import BucketPath
from lithify.files.bucket.client import check_reach, client_of, tell_why
from lithify.files.bucket.errors import BROKEN_MAX, Broken, Denied, Moved, NotDone, Passing, again, remote
from lithify.files.bucket.guard import BucketGuard
from lithify.files.bucket.marks import MARKS, NONCE, content_of, marked, marks_of, nonce, nonce_bytes, tells_of
from lithify.files.bucket.probe import probe
from lithify.files.bucket.reads import fetch
from lithify.files.listing import Listing
from lithify.files.local_files import copies, use
from lithify.files.os_errors import Exists, InDoubt, translated
from lithify.files.paths import PathGuard
from lithify.files.storage import Data, Storage

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta, PutMode
    from obstore.store import S3Store

WHOLE_BYTES_MAX = 16 << 20  # more is sent in parts, without a condition
DOUBT_S_MAX = 60.0  # how long a put goes out again before its fate is told as unknown
BUSY_S_MAX = 15.0  # and while none of its attempts can have been done
AT_ONCE = 16
PAGE = 1000  # what servers tell of a list in one answer
DATA = ".parquet"


class Seen(NamedTuple):
    """`tag`: what tells this object from any other that has been there or will be."""

    size_bytes: int
    tag: str


@dataclass(frozen=True)
class Decided:
    """Whether a put was done, or another came first, and what that has put there, as far as it was read."""

    done: bool
    found: bytes | None = None


class BucketStorage(Storage):
    remote = True

    @cached_property
    def path_guard(self) -> PathGuard:
        return BucketGuard()

    def _at(self, path: PurePath) -> tuple[S3Store, str]:
        """The bucket of a path, and its key there."""
        checked = self._checked(path)
        return client_of(checked), checked.key

    def _checked(self, path: PurePath) -> BucketPath:
        self.path_guard.split(path)
        if not isinstance(path, BucketPath):
            raise Corruption(f"{path} lies in no bucket: nothing was done there")
        return path

    # -- writing

    def create(self, path: PurePath, data: Data, mode: int | None = None) -> None:
        self.step("store.write")
        if not self._put_if(path, data, "create", ()).done:
            raise Exists(f"{path} exists already")

    def publish(self, path: PurePath, data: Data) -> None:
        """Who comes second reads what came first anyway: it is read at once, and told."""
        self.step("store.write")
        decided = self._put_if(path, data, "create", (), whole=True)
        if not decided.done:
            taken = Exists(f"{path} exists already")
            taken.found = decided.found
            raise taken

    def put(self, path: PurePath, data: Data, mode: int | None = None) -> None:
        self.step("store.write")
        with remote(path):
            self._put(path, data, "overwrite", marked(()))

    def swap(
        self,
        path: PurePath,
        change: Callable[[bytes | None], bytes | None],
        wait_s_max: float,
        what: str,
        mode: int | None = None,
    ) -> None:
        until_s, pause_s = time.monotonic() + wait_s_max, 0.01
        while True:
            content, found = self._whole(path) or (None, None)
            if (after := change(content)) is None:
                return
            self.step("store.swap")
            condition: PutMode = "create" if found is None else {"e_tag": found.meta["e_tag"]}
            if self._put_if(path, after, condition, () if found is None else marks_of(found), nonce()).done:
                return
            if time.monotonic() > until_s:
                raise Unavailable(f"others kept changing {what} for {wait_s_max:.0f} s: try again later")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)

    def _put_if(
        self,
        path: PurePath,
        data: Data,
        condition: PutMode,
        before: Sequence[str],
        behind: bytes = b"",
        *,
        whole: bool = False,
    ) -> Decided:
        """`whole`: whoever came first is read to know who it was."""
        marks = marked(before)
        begun_s, pause_s = time.monotonic(), 0.02
        doubt: LithifyError | None = None
        while True:
            try:
                if (decided := self._attempt(path, data, condition, marks, behind, whole)) is not None:
                    return decided
                last: LithifyError = NotDone(f"the server does not decide who writes {path}: try again later")
            except NotDone as error:
                last = error
            except Passing as error:
                last = doubt = error
            except LithifyError as error:
                if doubt is None:
                    raise
                raise InDoubt(f"{error}; whether {path} was written before that is not known: look at it") from error
            spent_s = time.monotonic() - begun_s
            if doubt is not None and spent_s > DOUBT_S_MAX:
                raise InDoubt(f"{last}; whether {path} was written is not known: look at it") from doubt
            if doubt is None and spent_s > BUSY_S_MAX:
                raise last
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)

    def _attempt(
        self,
        path: PurePath,
        data: Data,
        condition: PutMode,
        marks: Sequence[str],
        behind: bytes,
        whole: bool,
    ) -> Decided | None:
        """None: nobody's is done."""
        try:
            with remote(path):
                self._put(path, data, condition, marks, behind)
            return Decided(True)
        except (Exists, Moved, NotFound):
            content, found = (self._whole(path) or (None, None)) if whole else (None, self._get(path, head=True))
            if found is not None:
                return Decided(tells_of(marks_of(found), marks, path), content)
            return None if condition == "create" else Decided(False)  # deleted since it was read

    def _put(
        self,
        path: PurePath,
        data: Data | Path,
        condition: PutMode,
        marks: Sequence[str],
        behind: bytes = b"",
    ) -> None:
        at = self._checked(path)
        bucket = client_of(at, once=condition != "overwrite")
        parts = condition == "overwrite" and isinstance(data, Path)
        attributes = {MARKS: " ".join(marks)}
        if behind and not isinstance(data, Path):
            data, attributes[NONCE] = b"".join((data, behind)), str(len(behind))
        done = obstore.put(bucket, at.key, data, mode=condition, attributes=attributes, use_multipart=parts)
        if at.suffix == DATA and (tag := done.get("e_tag")):
            if isinstance(data, Path):
                copies().keep_file(path, tag, data)
            else:
                copies().keep(path, tag, data)

    def copy(self, path: PurePath, target: PurePath) -> None:
        """By the server. Names of copies are given out once, so that nobody else can be putting one there."""
        (bucket, key), (target_bucket, target_key) = self._at(path), self._at(target)
        self.step("store.link")
        if self._get(target, head=True) is not None:
            raise Exists(f"{target} exists already")
        with remote(path):
            if bucket is not target_bucket:
                found = obstore.get(bucket, key)
                attributes = {MARKS: marked(())[0], NONCE: str(nonce_bytes(found))}
                obstore.put(target_bucket, target_key, found, attributes=attributes)
            else:
                obstore.copy(bucket, key, target_key)
                copies().same(path, target)

    def copy_all(self, targets: Mapping[PurePath, PurePath]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self.copy, targets.keys(), targets.values()))

    def upload(self, file: PurePath, path: PurePath) -> None:
        self.step("store.write")
        source = Path(file)
        with translated(source):
            small = source.stat().st_size <= WHOLE_BYTES_MAX
            if small:
                return self.create(path, source.read_bytes())
        if self._get(path, head=True) is not None:
            raise Exists(f"{path} exists already")
        with translated(source), remote(path):
            self._put(path, source, "overwrite", marked(()))
        return None

    def download(self, path: PurePath, file: PurePath) -> None:
        self._at(path)
        fetch(path, Path(file))

    def download_all(self, files: Mapping[PurePath, PurePath]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self.download, files.keys(), files.values()))

    def move(self, path: PurePath, target: PurePath, *, sync: bool = True) -> None:
        """Two steps: whoever looks in between sees both."""
        self._checked(target)
        self.step("store.rename")
        self.put(target, self.read(path))
        self.delete(path)

    def delete(self, path: PurePath) -> None:
        self.step("store.delete")
        bucket, key = self._at(path)
        again(path, lambda: obstore.delete(bucket, key))

    def delete_all(self, paths: Iterable[PurePath]) -> None:
        """A thousand at a time, in no order."""
        found: dict[str, list[BucketPath]] = {}
        for path in map(self._checked, paths):
            found.setdefault(path.bucket, []).append(path)
        self.step("store.delete")
        for inside in found.values():
            self._delete_keys(inside[0].parent, [path.key for path in inside])

    def delete_folder(self, path: PurePath) -> None:
        self.step("store.delete_folder")
        if keys := [entry["path"] for entry in self._listed(path)]:
            self._delete_keys(path, keys)

    def _delete_keys(self, folder: PurePath, keys: list[str]) -> None:
        bucket, _ = self._at(folder)
        again(folder, lambda: obstore.delete(bucket, keys))

    def touch_ms(self, path: PurePath, at_ms: int | None = None, *, empty: bool = False) -> float:
        """The server gives the time, whatever was asked for."""
        content, _ = (None if empty else self._whole(path)) or (b"", None)
        self.put(path, content)
        return self.modified_ms(path)

    # -- reading

    def _get(self, path: PurePath, *, head: bool = False) -> GetResult | None:
        bucket, key = self._at(path)
        if not key:
            return None  # the bucket itself
        try:
            return again(path, lambda: obstore.get(bucket, key, options={"head": head}))
        except NotFound:
            if head:
                check_reach(self._checked(path))
            return None
        except Denied:
            if head:
                tell_why(self._checked(path))
            raise

    def _found(self, path: PurePath, *, head: bool = False) -> GetResult:
        if (found := self._get(path, head=head)) is None:
            raise NotFound(f"{path} does not exist")
        return found

    def read(self, path: PurePath) -> bytes:
        if (found := self._whole(path)) is None:
            raise NotFound(f"{path} does not exist")
        return found[0]

    def _whole(self, path: PurePath) -> tuple[bytes, GetResult] | None:
        """Content and what is told of it."""
        bucket, key = self._at(path)

        def get() -> tuple[bytes, GetResult]:
            found = obstore.get(bucket, key)
            return content_of(found), found

        try:
            return again(path, get)
        except NotFound:
            return None

    def read_all(self, paths: Iterable[PurePath]) -> list[bytes]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self.read, paths))

    def read_range(self, path: PurePath, start: int, length: int) -> bytes:
        bucket, key = self._at(path)
        if length <= 0 or start >= (size := self.size(path)):
            return b""
        return again(path, lambda: bytes(obstore.get_range(bucket, key, start=start, end=min(start + length, size))))

    def exists(self, path: PurePath) -> bool:
        return self._get(path, head=True) is not None or self.is_folder(path)

    def is_folder(self, path: PurePath) -> bool:
        return next(self._listed(path, at_once=1), None) is not None

    def size(self, path: PurePath) -> int:
        found = self._found(path, head=True)
        return found.meta["size"] - nonce_bytes(found)

    def sizes(self, paths: Iterable[PurePath]) -> list[int]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(self.size, paths))

    def modified_ms(self, path: PurePath) -> float:
        return self._found(path, head=True).meta["last_modified"].timestamp() * 1000

    def tag(self, path: PurePath) -> str | None:
        """The ETag alone would say of two equal contents that nothing was put in between."""
        return None if (found := self.seen(path)) is None else found.tag

    def seen(self, path: PurePath) -> Seen | None:
        """What is there, in one look. None: nothing."""
        found = self._get(path, head=True)
        if found is None:
            return None
        size_bytes = found.meta["size"] - nonce_bytes(found)
        return Seen(size_bytes, f"{found.meta['e_tag']} {' '.join(marks_of(found)[-1:])}")

    def names(self, folder: PurePath, after: str = "") -> list[str]:
        bucket, key = self._at(folder)
        if after:
            prefix = len(_inside(key))
            first = (entry["path"][prefix:].partition("/")[0] for entry in self._listed(folder, after=after))
            return sorted({name for name in first if name > after})
        found = again(folder, lambda: obstore.list_with_delimiter(bucket, key or None))
        paths = [*found["common_prefixes"], *(entry["path"] for entry in found["objects"])]
        return sorted(PurePath(path).name for path in paths if path != key)  # which some servers have for a folder

    def beginning(self, folder: PurePath) -> tuple[list[str], bool]:
        bucket, key = self._at(folder)
        pages = again(folder, lambda: next(iter(obstore.list(bucket, _inside(key), chunk_size=PAGE)), []))
        first = {entry["path"][len(_inside(key)) :].partition("/")[0] for entry in pages}
        return sorted(first - {""}), len(pages) < PAGE

    def entries(self, folder: PurePath) -> list[DiskFile]:
        bucket, key = self._at(folder)
        found = again(folder, lambda: obstore.list_with_delimiter(bucket, key or None)["objects"])
        files = (_disk_file(PurePath(entry["path"]).name, entry) for entry in found if entry["path"] != key)
        return sorted(files, key=lambda file: file.path)

    def below(self, folder: PurePath) -> Iterator[str]:
        prefix = len(_inside(self._at(folder)[1]))
        return iter(sorted(entry["path"][prefix:] for entry in self._listed(folder)))

    def own(self, folder: PurePath) -> Listing:
        prefix = len(_inside(self._at(folder)[1]))
        found = [_disk_file(entry["path"][prefix:], entry) for entry in self._listed(folder)]
        ours = [file for file in found if is_small_write(file.path) or is_job_folder(file.path.partition("/")[0])]
        return Listing(sorted(ours, key=lambda file: file.path))

    def look_at(self, folder: PurePath, path: str) -> DiskFile | None:
        if not lies_inside(path):
            return None
        found = self._get(folder / path, head=True)
        return None if found is None else _disk_file(path, found.meta)

    def _listed(self, folder: PurePath, at_once: int = PAGE, after: str = "") -> Iterator[ObjectMeta]:
        bucket, key = self._at(folder)
        prefix = _inside(key)
        offset = prefix + after if after else None
        for left in reversed(range(BROKEN_MAX)):
            try:
                with remote(folder):
                    for page in obstore.list(bucket, prefix or None, offset=offset, chunk_size=at_once):
                        yield from page
                        offset = page[-1]["path"] if page else offset  # from where to go on
                return
            except Broken:
                if not left:
                    raise

    def probe(self, folder: PurePath, rounds: int = 1) -> None:
        probe(self, folder, rounds)

    def local(self, path: PurePath) -> Path:
        """A copy that others may take away at any time."""
        return Path(use(path, self.size(path), str))


def _inside(key: str) -> str:
    """How the keys of what lies in a folder begin; the whole bucket is one, too."""
    return f"{key}/" if key else ""


def _disk_file(path: str, entry: ObjectMeta) -> DiskFile:
    identity = hashlib.blake2b(str(entry["e_tag"]).encode(), digest_size=7).digest()
    return DiskFile(
        path, entry["size"], int(entry["last_modified"].timestamp() * 1000), (0, int.from_bytes(identity, "big"))
    )
