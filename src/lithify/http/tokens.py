"""Who may call the service: tokens, kept in one small file of the lake.

A token is 256 random bits, so its SHA-256 is as hard to reverse as to guess; only that hash is stored, and the secret
is shown once. The file is replaced as a whole under a lock, so that two processes cannot lose each other's changes, and
read again when it has changed: a running service notices within a second what `lithify tokens` did. A file that cannot
be read lets nobody in.

What a token may do is its scopes, on all tables or on those that its patterns name. `admin` includes the others;
`write` does not include `read`. A token of some tables has no right to anything that concerns the lake as a whole.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal, TypeVar, get_args

from lithify.core.names import CONTROL_FOLDER, parse_table_name
from lithify.errors import Conflict, Corruption, InvalidRequest, LithifyError, NotFound
from lithify.files.local import LocalStorage
from lithify.files.open_storage import storage_of
from lithify.files.storage import Storage

Scope = Literal["read", "write", "maintain", "erase", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
PREFIX = "lith_"
FILE = "tokens.json"
FORMAT = 1
TOKENS_MAX, TABLES_MAX, NAME_LENGTH_MAX = 10_000, 100, 64
EXPIRES_S_MAX = 100 * 366 * 86_400
LOOK_S = 0.5
LOCK_WAIT_S_MAX = 10.0
# Long enough for any secret of ours; what is longer is not worth hashing.
SECRET_LENGTH_MAX = 256

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]*")
T = TypeVar("T")


@dataclass(frozen=True)
class Token:
    id: str
    name: str
    scopes: tuple[Scope, ...]
    tables: tuple[str, ...]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    sha256: str

    def allows(self, scope: Scope, table: str | None) -> bool:
        """Whether it covers this on one table, or, for None, on the lake as a whole."""
        return self.has(scope) and (not self.tables or (table is not None and self.covers(table)))

    def has(self, scope: Scope) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    def covers(self, table: str) -> bool:
        return not self.tables or table in self.tables or f"{table.partition('.')[0]}.*" in self.tables

    def state(self, now: float) -> Literal["valid", "expired", "revoked"]:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"

    def document(self) -> dict[str, Any]:
        """What may be shown: everything but the hash."""
        return {
            "id": self.id,
            "name": self.name,
            "scopes": list(self.scopes),
            "tables": list(self.tables),
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "revoked_at": self.revoked_at,
        }


class Tokens:
    def __init__(self, lake: PurePath, store: Storage | None = None, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._store, self._clock = lake / CONTROL_FOLDER, store or storage_of(lake), clock
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._stamp: str | None = None
        self._by_hash: Mapping[str, Token] = {}
        self._last_used: dict[str, float] = {}

    @property
    def path(self) -> PurePath:
        return self._folder / FILE

    # -- asking

    def find(self, secret: str) -> Token | None:
        """The token with this secret if it is valid now. Raises if the file cannot be read."""
        if len(secret) > SECRET_LENGTH_MAX:
            return None
        digest = _sha256(secret)
        token = self._known().get(digest)
        now = self._clock()
        if token is None or not hmac.compare_digest(token.sha256, digest) or token.state(now) != "valid":
            return None
        self._last_used[token.id] = now
        return token

    def is_valid(self, id: str) -> bool:
        """Whether a token that was let in would be let in again. Where the file cannot be read, nobody is."""
        try:
            known = self._known()
        except LithifyError:
            return False
        now = self._clock()
        return any(token.id == id and token.state(now) == "valid" for token in known.values())

    def listed(self) -> list[Token]:
        """All of them, the revoked and expired too, the oldest first."""
        return sorted(self._read(), key=lambda token: (token.created_at, token.id))

    def any_valid(self) -> bool:
        now = self._clock()
        return any(token.state(now) == "valid" for token in self._read())

    def last_used(self, id: str) -> float | None:
        """When this process last let the token in."""
        return self._last_used.get(id)

    # -- changing

    def create(
        self, name: str, scopes: Iterable[str], tables: Iterable[str] = (), expires_s: float | None = None
    ) -> tuple[Token, str]:
        """A new token and its secret, which nobody can look up afterwards."""
        return self._change(lambda known: self._with_new(known, name, scopes, tables, expires_s))

    def create_first(self, name: str) -> tuple[Token, str] | None:
        """An admin token if the lake has never had one; of two processes at once, one gets it."""
        if self._read():
            return None  # before the lock, which a lake that may only be read has no place for

        def first(known: list[Token]) -> tuple[list[Token] | None, tuple[Token, str] | None]:
            return (None, None) if known else self._with_new([], name, ("admin",), (), None)

        return self._change(first)

    def create_first_into(self, name: str, path: PurePath) -> str | None:
        """The same, with its secret in a new file that nobody else can read: there it is whole, or not at all."""
        if self._read():
            return None
        outside = LocalStorage()
        if outside.exists(path) or outside.path_guard.is_link(path):
            raise Conflict(f"{path} exists already, and a token goes into a new file: remove it, or name another")
        if (first := self.create_first(name)) is None:
            return None
        try:
            _write_secret(path, first[1])
        except LithifyError:
            self.revoke(first[0].id)
            raise
        return first[1]

    def revoke(self, id_or_name: str) -> Token:
        """End a token for good. By its id, or by its name if one valid token has it; again, nothing changes."""

        def ended(known: list[Token]) -> tuple[list[Token] | None, Token]:
            found = [token for token in known if token.id == id_or_name] or [
                token for token in known if token.name == id_or_name and token.revoked_at is None
            ]
            found = found or [token for token in known if token.name == id_or_name][-1:]
            if not found:
                raise NotFound(f"there is no token {id_or_name!r}: `lithify tokens list` shows what there is")
            if len(found) > 1:
                ids = ", ".join(token.id for token in found)
                raise Conflict(f"several tokens are named {id_or_name!r}: revoke by id, one of {ids}")
            if found[0].revoked_at is not None:
                return None, found[0]
            revoked = replace(found[0], revoked_at=self._clock())
            return [revoked if token.id == revoked.id else token for token in known], revoked

        return self._change(ended)

    def _with_new(
        self, known: list[Token], name: str, scopes: Iterable[str], tables: Iterable[str], expires_s: float | None
    ) -> tuple[list[Token], tuple[Token, str]]:
        if len(known) >= TOKENS_MAX:
            # Those that let nobody in any more make room.
            now = self._clock()
            known = [token for token in known if token.state(now) == "valid"]
            if len(known) >= TOKENS_MAX:
                raise InvalidRequest(f"there are {TOKENS_MAX:,} valid tokens already: revoke some that nobody uses")
        secret = PREFIX + secrets.token_urlsafe(32)
        now = self._clock()
        token = Token(
            id=secrets.token_hex(4),
            name=_checked_name(name),
            scopes=_checked_scopes(scopes),
            tables=_checked_tables(tables),
            created_at=now,
            expires_at=None if expires_s is None else now + _checked_expiry(expires_s),
            revoked_at=None,
            sha256=_sha256(secret),
        )
        if any(token.id == other.id for other in known):
            return self._with_new(known, name, scopes, tables, expires_s)
        return [*known, token], (token, secret)

    def _change(self, change: Callable[[list[Token]], tuple[list[Token] | None, T]]) -> T:
        """`change` tells what the tokens are from now on, None for as they were, and what is answered."""
        answers: list[T] = []

        def changed(content: bytes | None) -> bytes | None:
            tokens, answer = change([] if content is None else self._parsed(content))
            answers.append(answer)
            return None if tokens is None else _document(tokens)

        self._store.swap(self.path, changed, LOCK_WAIT_S_MAX, "tokens", mode=0o600)
        with self._lock:
            self._looked_at, self._stamp = float("-inf"), None
        return answers[-1]

    # -- the file

    def _known(self) -> Mapping[str, Token]:
        """By hash, at most `LOOK_S` old. The file is read only if it is another one than before."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return self._by_hash
        with self._lock:
            if now - self._looked_at >= LOOK_S:
                stamp = self._store.tag(self.path)
                if stamp is None or stamp != self._stamp:
                    # Forgotten first: if it cannot be read, nobody gets in.
                    self._by_hash, self._stamp = {}, None
                    self._by_hash = {token.sha256: token for token in self._read()}
                    self._stamp = stamp
                self._looked_at = now
            return self._by_hash

    def _read(self) -> list[Token]:
        try:
            return self._parsed(self._store.read(self.path))
        except NotFound:
            return []

    def _parsed(self, data: bytes) -> list[Token]:
        try:
            document = json.loads(data)
            newer = document["format"] > FORMAT
            tokens = [] if newer else [_token(each) for each in document["tokens"]]
        except (ValueError, KeyError, TypeError, AttributeError, InvalidRequest) as error:
            raise Corruption(
                f"{self.path} is damaged, so no token is accepted: restore it, or delete it and create new tokens"
            ) from error
        if newer:
            raise InvalidRequest(f"{self.path} was written by a newer Lithify: upgrade lithify")
        return tokens


def _document(tokens: list[Token]) -> bytes:
    listed = [{**token.document(), "sha256": token.sha256} for token in tokens]
    return (json.dumps({"format": FORMAT, "tokens": listed}, indent=1) + "\n").encode()


def _write_secret(path: PurePath, secret: str) -> None:
    outside, line = LocalStorage(), f"{secret}\n".encode()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    outside.create(draft, line, mode=0o600)
    try:
        # Fails if somebody was faster, and follows no link.
        if not outside.link(draft, path):
            outside.create(path, line, mode=0o600)
    finally:
        outside.delete(draft)


def _sha256(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(each: dict[str, Any]) -> Token:
    sha256 = str(each["sha256"])
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError("no hash")
    expires_at, revoked_at = (
        None if each[name] is None else float(each[name]) for name in ("expires_at", "revoked_at")
    )
    return Token(
        id=str(each["id"]),
        name=str(each["name"]),
        scopes=_checked_scopes(each["scopes"]),
        tables=_checked_tables(each["tables"]),
        created_at=float(each["created_at"]),
        expires_at=expires_at,
        revoked_at=revoked_at,
        sha256=sha256,
    )


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidRequest(
            f"{name[:NAME_LENGTH_MAX]!r} is no name of a token: 1 to {NAME_LENGTH_MAX} letters, digits, and _ . @ - "
            "after the first"
        )
    return name


def _checked_scopes(scopes: Iterable[str]) -> tuple[Scope, ...]:
    given = set(scopes)
    unknown = given - set(SCOPES)
    if unknown or not given:
        said = f"not {sorted(unknown)[0]!r}" if unknown else "at least one"
        raise InvalidRequest(f"the scopes of a token are {', '.join(SCOPES)}: {said}")
    return tuple(scope for scope in SCOPES if scope in given)


def _checked_tables(tables: Iterable[str]) -> tuple[str, ...]:
    """Names, and `namespace.*` for every table of a namespace."""
    patterns = tuple(dict.fromkeys(map(_plain_pattern, tables)))
    if len(patterns) > TABLES_MAX:
        raise InvalidRequest(f"a token names at most {TABLES_MAX} tables: use namespace.* for all of a namespace")
    return patterns


def _plain_pattern(pattern: str) -> str:
    if isinstance(pattern, str) and pattern.endswith(".*"):
        return f"{parse_table_name(pattern[:-1] + 't').namespace}.*"
    return str(parse_table_name(pattern))


def _checked_expiry(expires_s: float) -> float:
    if not 0 < expires_s <= EXPIRES_S_MAX:
        raise InvalidRequest("a token expires after a time between now and a hundred years")
    return expires_s
