"""Messages between the service and its query processes, over a pair of sockets.

A message is its length, the number of descriptors that come with it, and a pickled value. The service does not trust
what a query process says: of its messages, which have no descriptors and are of bounded length, only plain values,
predicates, statements and our own errors are unpickled.
"""

from __future__ import annotations

import io
import os
import pickle
import select
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lithify.errors import LithifyError

T = TypeVar("T")
_HEAD = struct.Struct("<QB")
DESCRIPTORS_MAX = 250
# What one call of the system takes at once.
PIECE_BYTES = 2**20
# Of one message of a query process. Rows come in pieces; what else it says is about as long as the query.
UNTRUSTED_BYTES_MAX = 2**28

_TRUSTED: dict[str, frozenset[str]] = {
    "builtins": frozenset({"bool", "int", "float", "str", "bytes", "type"}),
    "datetime": frozenset({"date", "datetime", "time", "timedelta", "timezone"}),
    "decimal": frozenset({"Decimal"}),
    "lithify.errors": frozenset({"_rebuild"}),
    "lithify.sql.pushdown": frozenset({"ScanRequest"}),
}
# Of these, whatever classes they define.
_OURS = frozenset({"lithify.core.predicates", "lithify.sql.statements.model"})


class Gone(EOFError):
    """The other side has closed its end, or is dead."""


class Untrusted(Gone):
    """The other side lives, and has said what is not taken from it."""


class Channel:
    """One end. `idle` is called while nothing comes, every `wait_s`, and may raise."""

    def __init__(self, end: socket.socket, *, trusting: bool) -> None:
        self._socket, self._trusting = end, trusting
        self._idle: Callable[[], object] | None = None

    def watch(self, wait_s: float | None, idle: Callable[[], object] | None) -> None:
        self._socket.settimeout(wait_s)
        self._idle = idle

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        self.send_bytes(pickle.dumps(message, 5), descriptors)

    def send_bytes(self, payload: bytes | memoryview, descriptors: Sequence[int] = ()) -> None:
        head = _HEAD.pack(len(payload), len(descriptors))
        try:
            if descriptors:
                self._patiently(socket.send_fds, self._socket, [head], list(descriptors))
                self._send_all(memoryview(payload))
            elif len(payload) < PIECE_BYTES:
                self._send_all(memoryview(head + bytes(payload)))
            else:
                self._send_all(memoryview(head))
                self._send_all(memoryview(payload))
        except OSError as error:
            raise Gone(str(error)) from error

    def _send_all(self, left: memoryview) -> None:
        while left:
            left = left[self._patiently(self._socket.send, left[:PIECE_BYTES]) :]

    def receive(self) -> tuple[Any, list[int]]:
        """A message, and the descriptors that came with it, which are the caller's to close."""
        payload, descriptors = self._receive()
        stream = io.BytesIO(payload)
        try:
            if self._trusting:
                return pickle.load(stream), descriptors
            if descriptors:
                raise Untrusted("a query process sent descriptors")
            return _Wary(stream).load(), []
        except BaseException as error:
            _close(descriptors)
            if self._trusting or isinstance(error, Untrusted) or not isinstance(error, Exception):
                raise
            raise Untrusted(f"a query process sent what is no message ({error})") from error

    def _receive(self) -> tuple[bytearray, list[int]]:
        head, descriptors = b"", list[int]()
        try:
            while len(head) < _HEAD.size:
                wanted = _HEAD.size - len(head)
                data, found, _, _ = self._patiently(socket.recv_fds, self._socket, wanted, DESCRIPTORS_MAX)
                descriptors += found
                if not data:
                    raise Gone
                head += data
            size, _ = _HEAD.unpack(head)
            if not self._trusting and size > UNTRUSTED_BYTES_MAX:
                raise Untrusted(f"a query process sent a message of {size:,} bytes")
            return self._exactly(size), descriptors
        except OSError as error:
            _close(descriptors)
            raise Gone(str(error)) from error
        except BaseException:
            _close(descriptors)
            raise

    def _exactly(self, size: int) -> bytearray:
        whole = bytearray(size)
        left = memoryview(whole)
        while left:
            came = self._patiently(self._socket.recv_into, left[:PIECE_BYTES])
            if not came:
                raise Gone
            left = left[came:]
        return whole

    def _patiently(self, call: Callable[..., T], *args: Any) -> T:
        """What the call answers, however long that takes; `idle` is told each time that nothing has come."""
        while True:
            try:
                return call(*args)
            except TimeoutError:
                if self._idle is not None:
                    self._idle()

    def close(self) -> None:
        self._socket.close()


class _Wary(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name in _TRUSTED.get(module, ()):
            return super().find_class(module, name)
        # Nothing is imported on a process's word: what it may name is here already.
        found = getattr(sys.modules.get(module), name, None) if module.startswith("lithify.") else None
        kind = found if isinstance(found, type) and found.__module__ == module else None
        if kind is not None and (module in _OURS or issubclass(kind, LithifyError)):
            return kind
        raise Untrusted(f"a query process sent a {module}.{name}")


def readable(descriptor: int, wait_s: float) -> bool:
    """Whether something comes within that time: a message, or the end of what it stands for. `select` knows no
    descriptors from 1,024 on, which a service with many clients has.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
