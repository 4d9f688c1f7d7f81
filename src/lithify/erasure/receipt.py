"""Receipts: what an erasure did and what was checked, signed, each naming the one before it by its hash.

A receipt is one JSON document. Its signature is over all of it but the signature itself, written canonically: keys in
order, no blanks, UTF-8. So it can be verified by any program that knows Ed25519, and without a lake.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from lithify.core.arguments import check_path
from lithify.core.optional import need
from lithify.core.results import Verified
from lithify.errors import Corruption, InvalidRequest, NotFound
from lithify.files.open_storage import storage_of
from lithify.files.user_files import named_place

VERSION = 1
NOT_COVERED = (
    "what a medium still holds of deleted files, and snapshots of the file system",
    "backups, copies, exports and hard links outside of the lake, and files that rows came from",
    "memory of programs, of processes that are not named here, and temporary folders of engines",
    "values that are not in the rows' own cells, such as sums and counts that were made from them",
    "other tables, but for cells that are long enough to be searched for as bytes",
    "what readers of changes took elsewhere before, if they did not read the delete while it could be read",
    "that nobody writes the rows again",
    "who may write to the lake's folder could sign a receipt too: keep receipts elsewhere",
)


def canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def hash_of(receipt: bytes) -> str:
    return hashlib.sha256(receipt).hexdigest()


def signed(document: Mapping[str, Any], private: bytes) -> bytes:
    """The receipt as it is kept: the canonical text, with its signature."""
    from lithify.erasure.secrets import public_of, signature

    full = {**document, "public_key": public_of(private)}
    return canonical({**full, "signature": signature(private, canonical(full))})


def verify_receipt(
    path: str | PurePath,
    public_key: str | None = None,
    *,
    key: Any = None,
    salt: str | bytes | None = None,
) -> Verified:
    """Look at a receipt, without a lake. `public_key`: of the lake that it should come from, as 64 hexadecimal digits;
    without one it is only said that nothing was changed, and by whom it was signed. `key` and `salt`: whether it is
    about that row, a tuple for a key of several columns.
    """
    return verified(receipt_at(path), str(path), public_key, key=key, salt=salt)


def receipt_at(path: str | PurePath) -> bytes:
    check_path("the receipt", path)
    place = named_place(path)
    try:
        return storage_of(place).read(place)
    except NotFound as error:
        raise NotFound(f"there is no receipt at {path}") from error


def verified(
    content: bytes, name: str, public_key: str | None = None, *, key: Any = None, salt: str | bytes | None = None
) -> Verified:
    need("erase")
    from lithify.erasure.secrets import is_signed, subject_of

    receipt = parsed(content, name)
    if (key is None) != (salt is None):
        raise InvalidRequest("to see whom a receipt is about, both the key and its salt are needed")
    unsigned = {field: value for field, value in receipt.items() if field != "signature"}
    problems = list[str]()
    genuine = is_signed(receipt["public_key"], canonical(unsigned), receipt["signature"])
    if not genuine:
        problems.append("it was changed after it was signed, or the signature was: it proves nothing")
    known = None if public_key is None else _digits(public_key) == receipt["public_key"]
    if known is False:
        problems.append(f"it was signed by {receipt['public_key']}, which is not the key that was expected")
    about = None
    if key is not None and salt is not None:
        values = key if isinstance(key, tuple | list) else (key,)
        about = subject_of(values, salt_of(salt)) in receipt["subjects"]
        if not about:
            problems.append("it is not about this key, or the salt is not the one that was handed out with it")
    return Verified(receipt["id"], receipt["table"], genuine, receipt["public_key"], known, about, tuple(problems))


def parsed(content: bytes, name: str) -> dict[str, Any]:
    try:
        receipt = json.loads(content)
        texts = [receipt[field] for field in ("id", "table", "public_key", "signature")]
        if not all(isinstance(text, str) for text in texts) or not isinstance(receipt["subjects"], list):
            raise TypeError
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(
            f"{name} is no receipt of an erasure, or is damaged: take it from where it was kept"
        ) from error
    if receipt.get("version") != VERSION:
        raise InvalidRequest(f"{name} is a receipt of version {receipt.get('version')}, this Lithify knows {VERSION}")
    found: dict[str, Any] = receipt
    return found


def salt_of(salt: str | bytes) -> bytes:
    try:
        return salt if isinstance(salt, bytes) else bytes.fromhex(salt.strip())
    except ValueError:
        raise InvalidRequest("a salt is 64 hexadecimal digits, as the erasure handed it out") from None


def _digits(public_key: str) -> str:
    if not isinstance(public_key, str) or len(public_key.strip()) != 64:
        raise InvalidRequest("a public key is 64 hexadecimal digits, as `lithify erasures` shows it")
    return public_key.strip().lower()
