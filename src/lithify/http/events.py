"""What happened a moment ago, for those who may see it: in pages, and as a stream.

A token for some tables is told of these and of cycles, and nothing of others: no name, no count, and no trace in ids,
which are random. A stream looks at the log of events several times a second, which costs a comparison, and ends by
itself after a while, when its token ends, and when the service stops; whoever reads it goes on with the last id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
from anyio import to_thread

from lithify.core.snapshot import Snapshot
from lithify.errors import LimitExceeded
from lithify.http.auth import Caller
from lithify.http.documents.events import EventDocument, EventsDocument
from lithify.http.service import Service
from lithify.metrics.recent_events import WRITTEN, RecentEvent, RecentEvents

STREAMS_MAX, STREAMS_PER_TOKEN_MAX = 32, 8
LOOK_S, SIGN_S, STREAM_S_MAX = 0.25, 10.0, 600.0
TABLES_MAX = 10_000
SIGN = b": still here\n\n"


@dataclass
class TableEvents:
    """Changes of tables, as they are noticed, become events."""

    log: RecentEvents
    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __call__(self, name: str, snapshot: Snapshot) -> None:
        """Writes of this process were told of as they were made."""
        before, now = self._seen.get(name), (snapshot.seq, snapshot.watermark)
        if len(self._seen) >= TABLES_MAX and before is None:
            self._seen.clear()
        self._seen[name] = now
        told_seq = max(self.log.told_seq(name), before[0] if before is not None else -1)
        folded = now[1] > before[1] if before is not None else snapshot.seq <= snapshot.watermark
        facts: dict[str, Any] = {
            "seq": snapshot.seq,
            "watermark": snapshot.watermark,
            "pending_files": len(snapshot.changes),
            "pending_rows": snapshot.pending_rows,
        }
        if snapshot.seq > told_seq:
            self.log.tell(WRITTEN, name, **facts)
        if folded:
            self.log.tell("folded", name, **facts)
        elif before == now:
            self.log.tell("changed", name, **facts)


def seen_by(caller: Caller, events: Iterable[RecentEvent]) -> list[EventDocument]:
    whole = caller.may("read") or caller.may("maintain")
    return [
        EventDocument(
            id=each.id,
            time_ms=each.time_ms,
            event=each.event,
            table=each.table,
            facts=dict(each.facts) | (dict(each.secret) if whole else {}),
        )
        for each in events
        if each.table is None or caller.may("read", each.table) or caller.may("maintain", each.table)
    ]


def page_of(log: RecentEvents, caller: Caller, after: str | None, limit: int) -> EventsDocument:
    """Without `after` the newest."""
    found, gap = log.after(after)
    seen = seen_by(caller, found)
    shown = seen[-limit:] if after is None else seen[:limit]
    last = shown[-1].id if shown else (None if gap else after)
    return EventsDocument(events=shown, last=last, gap=gap, more=after is not None and len(seen) > limit)


def check_streams(service: Service, caller: Caller) -> None:
    own, all_of_them = service.streams[caller.token.id], sum(service.streams.values())
    if own >= STREAMS_PER_TOKEN_MAX or all_of_them >= STREAMS_MAX:
        most = f"{STREAMS_PER_TOKEN_MAX} of a token" if own >= STREAMS_PER_TOKEN_MAX else f"{STREAMS_MAX} in all"
        raise LimitExceeded(
            f"streams of events are at most {most}: end one of them, or ask for pages, without "
            "Accept: text/event-stream",
            limit="queue",
        )


async def stream_of(service: Service, log: RecentEvents, caller: Caller, after: str | None) -> AsyncIterator[bytes]:
    """Server-sent events. Without `after`, of what happens from now on."""
    loop, place = asyncio.get_running_loop(), log.last if after is None else after
    ends_s = loop.time() + STREAM_S_MAX
    sign_s = loop.time() + SIGN_S
    service.streams[caller.token.id] += 1
    try:
        yield SIGN
        known = None  # the last one of all, to tell that there is nothing new
        while loop.time() < ends_s and not service.stopping:
            if log.last != known or known is None:
                found, gap = log.after(place)
                if gap:
                    yield b"event: gap\ndata: {}\n\n"
                for document in seen_by(caller, found):
                    yield _sent(document)
                    sign_s = loop.time() + SIGN_S
                place = known = found[-1].id if found else place
            if loop.time() >= sign_s:
                if not await to_thread.run_sync(service.tokens.is_valid, caller.token.id):
                    return
                yield SIGN
                sign_s = loop.time() + SIGN_S
            await asyncio.sleep(LOOK_S)
    finally:
        service.streams[caller.token.id] -= 1
        if not service.streams[caller.token.id]:
            del service.streams[caller.token.id]


def _sent(document: EventDocument) -> bytes:
    data = orjson.dumps(document.model_dump())
    return b"id: " + document.id.encode() + b"\nevent: " + document.event.encode() + b"\ndata: " + data + b"\n\n"
