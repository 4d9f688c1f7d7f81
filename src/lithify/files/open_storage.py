"""Which storage a path lies in. What only buckets need is loaded for them alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import PurePath

from lithify.core.optional import BUCKETS, missing
from lithify.files.addresses import is_remote
from lithify.files.local import LocalStorage
from lithify.files.storage import Storage


def storage_of(path: PurePath | str) -> Storage:
    """A new one, which trusts no root yet: whatever it keeps, it shares with others of its kind."""
    if not is_remote(path):
        return LocalStorage()
    if find_spec(BUCKETS) is None:
        raise missing(BUCKETS)
    from lithify.files.bucket.storage import BucketStorage

    return BucketStorage()
