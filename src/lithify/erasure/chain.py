"""The lake's signing key, and the chain of its receipts.

`head.json` holds the newest receipt with its number and hash. It is swapped first, and the receipt is put beside its
erasure afterwards, by whoever comes next if its maker died in between: so no link of the chain is lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lithify.erasure.receipt import hash_of, parsed, signed
from lithify.erasure.records import Records
from lithify.erasure.secrets import new_signing_key, pem_of, public_of
from lithify.errors import Corruption, NotFound, Unavailable

KEY, PUBLIC, HEAD, RECEIPT = "signing.key", "signing.pub", "head.json", "receipt.json"
KEY_BYTES = 32


def signing_key(records: Records) -> bytes:
    """The lake's own, made with its first erasure. Raises Unavailable where it is lost."""
    store, path = records.store, records.folder / KEY
    try:
        key = store.read(path)
    except NotFound:
        if store.exists(records.folder / HEAD):
            raise Unavailable(
                f"the key that signs this lake's receipts is gone ({path}): restore it from a copy. Receipts that were "
                f"handed out stay valid; to begin a new chain, move {records.folder / HEAD} away, and keep it"
            ) from None
        return _made(records)
    if len(key) != KEY_BYTES:
        raise Corruption(f"{path} is no signing key: restore it from a copy")
    return key


def _made(records: Records) -> bytes:
    store, path = records.store, records.folder / KEY
    store.make_folder(records.folder, 0o700)
    wait_s = records.runtime.settings.lock_wait_s_max
    store.swap(path, lambda there: None if there else new_signing_key(), wait_s, "the key for receipts", 0o600)
    key = store.read(path)
    store.put(records.folder / PUBLIC, pem_of(public_of(key)))
    return key


def public_key(records: Records) -> str | None:
    """None: there was no erasure yet, or the key is lost."""
    try:
        return public_of(records.store.read(records.folder / KEY))
    except NotFound:
        return None


def put_receipt(records: Records, id: str, document: Mapping[str, Any]) -> bytes:
    """The next receipt of the chain, or the one that this erasure has already. Under the lease of erasures."""
    key, store, made = signing_key(records), records.store, b""
    _put_newest(records)
    if store.exists(records.path(id) / RECEIPT):
        return store.read(records.path(id) / RECEIPT)

    def change(content: bytes | None) -> bytes:
        nonlocal made
        head = _parsed(records, content)
        more = {"number": head["number"] + 1, "previous": head["hash"]}
        made = signed({**document, **more}, key)
        return json.dumps({**more, "id": id, "hash": hash_of(made), "receipt": made.decode()}).encode()

    store.swap(records.folder / HEAD, change, records.runtime.settings.lock_wait_s_max, "the chain of receipts")
    store.step("erase.chained")
    _put_newest(records)
    return made


def _put_newest(records: Records) -> None:
    """Whoever chained it may have ended before it lay in its place."""
    store, path = records.store, records.folder / HEAD
    head = _parsed(records, store.read(path) if store.exists(path) else None)
    if head["id"] is not None and not store.exists(records.path(head["id"]) / RECEIPT):
        store.put(records.path(head["id"]) / RECEIPT, head["receipt"].encode())


def _parsed(records: Records, content: bytes | None) -> dict[str, Any]:
    if content is None:
        return {"number": 0, "id": None, "hash": None, "receipt": ""}
    try:
        head = json.loads(content)
        if not isinstance(head["number"], int) or not all(isinstance(head[n], str) for n in ("id", "hash", "receipt")):
            raise TypeError
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(
            f"{records.folder / HEAD} is not readable: restore it from a copy, it chains the receipts"
        ) from error
    return dict(head)


def broken_links(records: Records) -> list[str]:
    """What is wrong with the chain of the receipts that lie in the lake; nothing: it is whole."""
    found = list[str]()
    receipts = dict[int, tuple[str, bytes]]()
    for record in records.all():
        path = records.path(record.id) / RECEIPT
        if records.store.exists(path):
            content = records.store.read(path)
            receipts[parsed(content, str(path))["number"]] = record.id, content
    for number, (id, content) in sorted(receipts.items()):
        before = receipts.get(number - 1)
        previous = json.loads(content)["previous"]
        if number > 1 and before is None:
            found.append(f"the receipt before that of {id} is not there")
        elif before is not None and previous != hash_of(before[1]):
            found.append(f"the receipt of {id} names another one before it than that of {before[0]}")
    return found
