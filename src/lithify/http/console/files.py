"""The console's files, as they are answered: whole, from memory, at exact paths, under a policy of their own.

Nothing of the lake is in them, so they are public. The policy lets the page load and call its own origin and nothing
else, run no text as code, and turn no text into markup (trusted types): what a row or a name holds can only ever be
shown as text. A browser asks each time whether its copy is still right (ETag), so a new version is seen at once.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
PREFIX = "/console/"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
# Where a file is answered besides under its own name.
_ALSO_AT = {"index.html": "/", "favicon.svg": "/favicon.ico"}


@dataclass(frozen=True)
class File:
    content: bytes
    media_type: str

    @cached_property
    def tag(self) -> str:
        return hashlib.sha256(self.content).hexdigest()[:32]

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.content, 9, mtime=0)

    def response(self, request: Request) -> Response:
        packed = "gzip" in request.headers.get("accept-encoding", "")
        tag = f'"{self.tag}{"-gz" if packed else ""}"'
        headers = {
            "Content-Security-Policy": POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-cache",
            "ETag": tag,
            "Vary": "Accept-Encoding",
        }
        if tag in (each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        if packed:
            headers["Content-Encoding"] = "gzip"
        return Response(self.packed if packed else self.content, headers=headers, media_type=self.media_type)


@cache
def console_files() -> Mapping[str, File]:
    """By the path that each is answered at."""
    found: dict[str, File] = {}
    for name, entry in _below(files("lithify.http.console") / "static", ""):
        suffix = f".{name.rpartition('.')[2]}"
        if suffix in _TYPES:
            file = File(entry.read_bytes(), _TYPES[suffix])
            found[_ALSO_AT[name] if name == "index.html" else PREFIX + name] = file
            if name in _ALSO_AT:
                found[_ALSO_AT[name]] = file
    return found


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry
