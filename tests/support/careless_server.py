"""An S3 server that is not fit for a lake, in one way at a time. It keeps objects in memory, and asks for no keys."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from support.s3_servers import S3Server

Flaw = Literal[
    "ignores If-None-Match",
    "ignores If-Match",
    "loses metadata",
    "lists nothing",
    "keeps what is deleted",
    "looks, then writes",
    "",
]
RACERS, RACE_S_MAX = 4, 10.0


@contextlib.contextmanager
def careless(flaw: Flaw) -> Iterator[S3Server]:
    server = _Server(flaw)
    thread = threading.Thread(target=server.serve_forever, name="careless server", daemon=True)
    thread.start()
    try:
        yield S3Server("careless", f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, flaw: Flaw) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.flaw = flaw
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.lock = threading.Lock()
        self.race = threading.Barrier(RACERS)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_PUT(self) -> None:
        body, name, flaw = self._body(), self._name(), self.server.flaw
        given = {key: value for key, value in self.headers.items() if key.lower().startswith("x-amz-meta-")}
        if flaw == "looks, then writes" and "/race-" in name and name not in self.server.objects:
            # Nobody writes before all have looked.
            with contextlib.suppress(threading.BrokenBarrierError):
                self.server.race.wait(RACE_S_MAX)
            self.server.objects[name] = body, given
            self._answer(200, b"", {"ETag": _tag(body)})
            return
        with self.server.lock:
            there = self.server.objects.get(name)
            wanted = self.headers.get("if-match")
            refused = (self.headers.get("if-none-match") and there and flaw != "ignores If-None-Match") or (
                wanted and flaw != "ignores If-Match" and (there is None or _tag(there[0]) != wanted)
            )
            if not refused:
                self.server.objects[name] = body, {} if flaw == "loses metadata" else given
        if refused:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            self._answer(200, b"", {"ETag": _tag(body)})

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._answer(200, self._listed(query.get("prefix", [""])[0]))
            return
        there = self.server.objects.get(self._name())
        if there is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            head = {"ETag": _tag(there[0]), "Last-Modified": formatdate(usegmt=True)}
            self._answer(200, there[0], {**there[1], **head})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Deletes, the only ones that are asked for."""
        names = [part.partition("</Key>")[0] for part in self._body().decode().split("<Key>")[1:]]
        for name in names:
            if self.server.flaw != "keeps what is deleted":
                self.server.objects.pop(name, None)
        done = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
        self._answer(200, f"<DeleteResult>{done}</DeleteResult>".encode())

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def _listed(self, prefix: str) -> bytes:
        names = [] if self.server.flaw == "lists nothing" else sorted(self.server.objects)
        when = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size><ETag>x</ETag>"
        found = "".join(f"<Contents><Key>{n}</Key>{when}</Contents>" for n in names if n.startswith(prefix))
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>".encode()

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'
