"""What an erasure encrypts, signs and keeps from others: the only importer of cryptography.

The needles lie encrypted beside the key that opens them until the erasure is done: then the key goes, and what a backup
of the folder may have kept says nothing. Receipts are signed with the lake's own key (Ed25519), which lies in the lake:
whoever may write there could sign, so the chain, and a copy of receipts elsewhere, is what makes a forgery show.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lithify.errors import Corruption

SALT_BYTES = 32


def new_key() -> bytes:
    return Fernet.generate_key()


def sealed(document: Any, key: bytes) -> bytes:
    return Fernet(key).encrypt(json.dumps(document).encode())


def unsealed(data: bytes, key: bytes, what: str) -> Any:
    try:
        return json.loads(Fernet(key).decrypt(data))
    except (InvalidToken, ValueError) as error:
        raise Corruption(
            f"{what} cannot be opened with its key: cancel this erasure, and ask for it once more"
        ) from error


# -- signatures


def new_signing_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_of(private: bytes) -> str:
    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw().hex()


def pem_of(public: str) -> bytes:
    """For other programs."""
    kinds = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).public_bytes(*kinds)


def signature(private: bytes, data: bytes) -> str:
    return Ed25519PrivateKey.from_private_bytes(private).sign(data).hex()


def is_signed(public: str, data: bytes, signed: str) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signed), data)
    except (InvalidSignature, ValueError):
        return False
    return True


# -- who it is about


def subject_of(key: Iterable[Any], salt: bytes) -> str:
    """The same for the same key and salt, and nothing for whoever lacks one of them. Values count by their text."""
    return hmac.new(salt, json.dumps([str(value) for value in key]).encode(), hashlib.sha256).hexdigest()
