"""A server that takes keys for some hours, which come with a token. The servers of the tests know none: so a proxy
takes the token, and signs each request anew without it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import replace

from support.fault_proxy import FaultProxy, Request
from support.s3_servers import S3Server

TOKEN = "a-token-of-this-session-and-of-nobody-else"
_HEADER = "x-amz-security-token"
_SIGNED = re.compile(r"Credential=[^/]+/(\S+?),\s*SignedHeaders=(\S+?),\s*Signature=[0-9a-f]+")


class TokenProxy(FaultProxy):
    def __init__(self, server: S3Server) -> None:
        super().__init__(server)
        self.without = 0  # requests that came without a token

    async def _forward(self, request: Request) -> bytes:
        if request.headers.get(_HEADER) != TOKEN:
            self.without += 1
            return await super()._forward(request)
        return await super()._forward(self._signed_anew(request))

    def _signed_anew(self, request: Request) -> Request:
        said = request.headers["authorization"]
        found = _SIGNED.search(said)
        assert found is not None, said
        scope, names = found[1], [name for name in found[2].split(";") if name != _HEADER]
        path, _, query = request.target.partition("?")
        parts = sorted(part if "=" in part else f"{part}=" for part in query.split("&") if part)
        lines = [request.method, path, "&".join(parts)]
        lines += [*(f"{name}:{request.headers[name]}" for name in names), "", ";".join(names)]
        asked = "\n".join([*lines, request.headers["x-amz-content-sha256"]])
        text = ["AWS4-HMAC-SHA256", request.headers["x-amz-date"], scope, hashlib.sha256(asked.encode()).hexdigest()]
        key = f"AWS4{self._server.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, "\n".join(text).encode(), "sha256").hex()
        who = f"Credential={self._server.access_key}/{scope}, SignedHeaders={';'.join(names)}, Signature={signature}"
        head = re.sub(rb"(?im)^x-amz-security-token:.*\r\n", b"", request.head)
        head = re.sub(rb"(?im)^authorization:.*\r\n", f"authorization: AWS4-HMAC-SHA256 {who}\r\n".encode(), head)
        return replace(request, head=head)
