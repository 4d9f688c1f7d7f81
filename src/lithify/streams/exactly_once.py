"""How far a feed has come into a table, remembered in the commit that brings its rows.

A feed is a streaming query or a step of a pipeline: it comes in portions, each with a number that only goes up. The
commit of a portion carries `txn("lithify.<feed>", number)`, so that rows and progress are in the log together or not at
all. A portion that comes again is recognised; one whose predecessor the table has not seen is refused. Both are looked
at again at the version that is swapped, on every attempt: of two processes with the same portion one commits, and the
other is told that it has.

Beside the number the log remembers the seq of that commit, because a table that was dropped and created anew at the
same place keeps its predecessor's txns; the settings that the feed was begun with, which must not change on the way;
and, where it is known, what the feed reads from, as a hash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

from lithify.delta.changes import ChangesLog
from lithify.errors import InvalidRequest
from lithify.write.conditions import Condition, Replay

FEED_LENGTH_MAX = 200
_FEED = re.compile(r"(stream\.[\w-]+|pipeline(\.[\w-]+)+)", re.ASCII)
_RESERVED = (".seq", ".settings", ".origin")


@dataclass(frozen=True)
class Checkpoint(Condition):
    """What a portion moves a feed to: `after`, from `before` (None: it is the first one).

    `settings` is fixed by the feed's first commit. So is `origin`, the source's identity, wherever both know one.
    """

    feed: str
    after: int
    before: int | None
    settings: int = 0
    origin: str | None = None

    def __post_init__(self) -> None:
        check_feed(self.feed)
        if self.after < 0 or (self.before is not None and not 0 <= self.before < self.after):
            raise InvalidRequest(f"{self.feed} cannot go from {self.before} to {self.after}: progress only goes up")

    def txns(self, seq: int) -> dict[str, int]:
        """What a commit with this seq has to remember. All of it each time: what is not renewed is forgotten."""
        name = feed_txn(self.feed)
        found = {name: self.after, f"{name}.seq": seq, f"{name}.settings": self.settings}
        return found if self.origin is None else {**found, f"{name}.origin": fingerprint(self.origin)}

    @property
    def alone(self) -> bool:
        return True

    @property
    def may_be_empty(self) -> bool:
        return True  # it still says how far the feed has come

    def check(self, changes: ChangesLog) -> Replay | None:
        seq = admit(changes, self)
        return None if seq is None else Replay.of(changes, seq)


@dataclass(frozen=True)
class Remembered:
    after: int
    seq: int
    settings: int
    origin: int | None


def feed_txn(feed: str) -> str:
    return f"lithify.{feed}"


def check_feed(feed: str) -> None:
    if not _FEED.fullmatch(feed) or len(feed) > FEED_LENGTH_MAX or feed.endswith(_RESERVED):
        raise InvalidRequest(
            f"{feed[:FEED_LENGTH_MAX]!r} cannot name a stream or a step: use letters, digits, _ and - (up to "
            f"{FEED_LENGTH_MAX} in all), and none of {', '.join(word[1:] for word in _RESERVED)}"
        )


def fingerprint(origin: str) -> int:
    """A number that stands for it in a txn."""
    return int.from_bytes(blake2b(origin.encode(), digest_size=8).digest(), "big") >> 1


def recall(changes: ChangesLog, feed: str) -> Remembered | None:
    """What the table knows of a feed, as of the log handle's version."""
    name = feed_txn(feed)
    seq, after, settings, origin = changes.log.txns(f"{name}.seq", name, f"{name}.settings", f"{name}.origin")
    if seq is None or after is None or seq <= changes.created_at_seq:
        return None
    return Remembered(after, seq, settings or 0, origin)


def admit(changes: ChangesLog, checkpoint: Checkpoint) -> int | None:
    """None: the portion may be committed on this version. Else the seq of the commit that has already brought it."""
    known = recall(changes, checkpoint.feed)
    what = f"{checkpoint.feed} on table {changes.table}"
    if known is None:
        if checkpoint.before is None:
            return None
        raise InvalidRequest(
            f"{what} goes on after {checkpoint.before}, but the table remembers nothing of it: it belongs to another "
            "table, or this one was created anew or has not seen it for so long that it was forgotten. Start it again "
            "from its beginning (a stream with a new checkpoint folder)"
        )
    if known.settings != checkpoint.settings:
        raise InvalidRequest(
            f"{what} was begun with other settings (mode, op_column): go on with those, or start it again from its "
            "beginning under another name (a stream with a new checkpoint folder)"
        )
    if None not in (known.origin, checkpoint.origin) and known.origin != fingerprint(checkpoint.origin or ""):
        raise InvalidRequest(
            f"{what} reads from something else than it did: a name belongs to one source (a stream's to one checkpoint "
            "folder). Give this one another name"
        )
    if known.after >= checkpoint.after:
        return known.seq
    if known.after != checkpoint.before:
        raise InvalidRequest(
            f"{what} stands at {known.after}, but what comes now follows {checkpoint.before}: portions in between are "
            "missing. Send them first, or start it again from its beginning under another name (a stream with a new "
            "checkpoint folder)"
        )
    return None
