"""Where a lake lies, as users and engines spell it: a folder, or `s3://bucket/prefix`, or a bucket of its own.

Everywhere else that is a path, from which others are made with `/`. A `BucketPath` is one in a bucket: it is spelled
with both of its slashes, of which `PurePath` would swallow one.
"""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath
from urllib.parse import unquote, urlsplit

from lithify.errors import InvalidRequest

SCHEME = "s3"
_SHORT, _LONG = f"{SCHEME}:/", f"{SCHEME}://"
# What people may try, with the name that they know it by.
_OTHERS = {
    "gs": "Google Cloud Storage",
    "gcs": "Google Cloud Storage",
    "az": "Azure",
    "azure": "Azure",
    "abfs": "Azure",
    "abfss": "Azure",
    "wasb": "Azure",
    "wasbs": "Azure",
    "adl": "Azure",
    "hdfs": "HDFS",
    "oss": "Alibaba OSS",
    "dbfs": "DBFS",
}


class BucketPath(PurePosixPath):
    """`s3://bucket/key`; nothing that is done to it asks the bucket."""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{_LONG}{text[len(_SHORT) :]}" if text.startswith(_SHORT) else text

    def __fspath__(self) -> str:
        return str(self)

    def __hash__(self) -> int:
        return hash(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BucketPath) and self.parts == other.parts

    def is_absolute(self) -> bool:
        return True

    @property
    def bucket(self) -> str:
        return self.parts[1]

    @property
    def key(self) -> str:
        return "/".join(self.parts[2:])


def is_remote(path: PurePath | str) -> bool:
    return isinstance(path, BucketPath) or (isinstance(path, str) and path.startswith(_SHORT))


def path_of(text: PurePath | str) -> PurePath:
    """The path that a text means, of a bucket or of this machine."""
    if isinstance(text, PurePath):
        return text
    if text.startswith(_SHORT):
        return BucketPath(text)
    return PurePath(text)


def folder_of(text: str) -> str:
    """The folder that a user wrote, perhaps as a file:// address."""
    return unquote(urlsplit(text).path) if text.startswith("file://") else text


def address_of(text: str) -> BucketPath | None:
    """What a user wrote, if it is the address of a bucket and not a folder; other addresses are refused by name."""
    scheme, colon, rest = text.partition(":/")
    scheme = "s3" if scheme.lower() in ("s3", "s3a", "s3n") else scheme  # as Spark spells it
    if scheme == SCHEME and colon and any(sign in rest.lstrip("/").partition("/")[0] for sign in "@:"):
        # What stands there may be a key: it is not repeated.
        raise InvalidRequest(
            "the name of a bucket has no '@' and no ':': write s3://bucket/prefix; keys are taken from "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if scheme == SCHEME and colon and not rest.startswith("/"):
        raise InvalidRequest(f"{text} has one slash: write s3://{rest}, as text; a folder of that name is ./{text}")
    if not rest.startswith("/") or "/" in scheme or scheme == "file":
        return None
    if scheme != SCHEME and "@" in rest:
        text = f"{scheme}://…"
    if scheme in ("http", "https"):
        raise InvalidRequest(
            f"{text} is an address, not a folder: for a service use lithify.connect, or --server in place of --lake"
        )
    if scheme != SCHEME:
        known = _OTHERS.get(scheme.lower())
        raise InvalidRequest(
            f"{text}: a lake cannot lie in {known or f'{scheme}://'} yet, only in a folder or at s3://bucket/prefix"
        )
    bucket, *parts = [part for number, part in enumerate(rest[1:].split("/")) if part or not number]
    if not bucket:
        raise InvalidRequest(f"{text} names no bucket: write s3://bucket/prefix")
    if any(part in (".", "..") for part in parts) or any(sign in text for sign in "\\?#\0\n"):
        raise InvalidRequest(f"{text!r} is no address that a lake can have: write s3://bucket/prefix")
    return BucketPath(_SHORT + "/".join([bucket, *parts]))
