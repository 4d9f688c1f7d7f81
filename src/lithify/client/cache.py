"""The hot cache of a service, told from afar: the methods of `Lake.cache`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lithify.client.documents import field_of, rebuilt
from lithify.client.transport import Call, Transport
from lithify.core.results import CacheStats, HotTableStats


class RemoteCache:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def pin(self, name: str, columns: Sequence[str] | None = None) -> HotTableStats:
        """Load a table, or these columns of it, on the server now, and keep it there until it is unpinned."""
        return rebuilt(HotTableStats, self._post("pin", {"table": name, "columns": columns and list(columns)}))

    def unpin(self, name: str) -> bool:
        """Let a table go when room is needed. Whether it was pinned."""
        return bool(field_of(self._post("unpin", {"table": name}), "unpinned"))

    def evict(self, name: str | None = None) -> int:
        """Give up a table, or everything, a pin too; answers how many bytes that gave back."""
        return int(field_of(self._post("evict", {"table": name}), "bytes"))

    def stats(self) -> CacheStats:
        return rebuilt(CacheStats, self._transport.ask(Call("GET", "/query/cache/stats", again=True)))

    def _post(self, verb: str, document: dict[str, Any]) -> Any:
        return self._transport.ask(Call("POST", f"/query/cache/{verb}", json=document, again=True, work=verb == "pin"))
