"""`lithify serve` from its start to its end: where it listens, whom it lets in, and how it stops."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from fastapi import FastAPI
from pyarrow import flight
from typer.testing import CliRunner

import lithify.cli
from lithify import InvalidRequest, Lake, Settings, Unavailable
from lithify.cli.main import app as cli
from lithify.flight.messages import enveloped
from lithify.http.server import Server, check_address, listen, tls_context
from lithify.http.service import Service
from lithify.http.tokens import Tokens
from support.probes import add_probes
from support.waiting import WAIT_S_MAX, eventually

_NAMES = [f"t{number}" for number in range(24)]
ENDLESS = (
    f"select count(*) from {', '.join(f'shop.orders {name}' for name in _NAMES)} "
    f"where {' + '.join(f'{name}.id' for name in _NAMES)} = 7"
)


class Process:
    """A `lithify serve` of its own, which is ended with the test."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        source = str(Path(lithify.cli.__file__).parents[2])
        self._child = subprocess.Popen(
            [sys.executable, "-m", "lithify.cli", "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment, "PYTHONPATH": source},
        )

    def line(self) -> str:
        """What it said first, and no byte more: the rest is for `end`."""
        assert self._child.stdout is not None
        line = b""
        while not line.endswith(b"\n") and (byte := os.read(self._child.stdout.fileno(), 1)):
            line += byte
        assert line, self.end()
        return line.decode()

    def signal(self, number: int) -> None:
        self._child.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Its exit code and what else it said."""
        out, err = self._child.communicate(timeout=WAIT_S_MAX)
        return self._child.returncode, out, err

    def close(self) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.communicate()


Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Process] = []

    def make(*arguments: str, **environment: str) -> Process:
        started.append(Process(*arguments, **environment))
        return started[-1]

    yield make
    for process in started:
        process.close()


@pytest.mark.slow
def test_flight_sql_beside_http(start: Start, lake_path: Path) -> None:
    served = start("--lake", str(lake_path), "--json", "--flight-port", "0")
    started = json.loads(served.line())
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {started['token']}".encode())])
    asked = flight.FlightDescriptor.for_command(enveloped("CommandStatementQuery", query="SELECT 1"))
    with flight.connect(started["flight"]) as client:
        assert client.get_flight_info(asked, options).total_records == 1
        served.signal(signal.SIGTERM)
        code, _, err = served.end()
    assert code == 0, err


@pytest.mark.slow
def test_a_node_without_the_role_serves_and_its_maintenance_is_idle(
    start: Start, lake_path: Path, tmp_path: Path
) -> None:
    config = tmp_path / "node.toml"
    config.write_text('roles = ["read", "write"]\npolicy_interval_s = 0.1\n')
    node = start("--lake", str(lake_path), "--json", LITHIFY_CONFIG=str(config))
    started = json.loads(node.line())
    client = httpx.Client(base_url=started["url"], headers={"Authorization": f"Bearer {started['token']}"})

    def status() -> dict[str, Any]:
        return dict(client.get("/v1/maintenance/status").raise_for_status().json())

    eventually(lambda: status()["idle_because"])
    assert status()["scheduled"]
    assert not status()["may_compact"]
    assert client.get("/v1/tables").status_code == 200

    config.write_text('roles = ["read", "write", "compact"]\npolicy_interval_s = 0.1\n')
    eventually(lambda: status()["last_cycle"])
    assert (status()["idle_because"], status()["may_compact"]) == (None, True)

    client.close()
    node.signal(signal.SIGTERM)
    code, _, err = node.end()
    assert code == 0
    assert err.count("maintenance idle") == 1
    assert "roles is read,write" in err
    assert "maintenance working again" in err


IDLE = 1_200


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE + 500
    if before[1] != resource.RLIM_INFINITY and before[1] < wanted:
        pytest.skip("this system lets a process have too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
@pytest.mark.usefixtures("many_descriptors")
def test_more_than_a_thousand_idle_connections_keep_nobody_out(start: Start, lake_path: Path) -> None:
    """More than it takes at all: silent ones, half requests, and answered ones that are kept."""
    service = start("--lake", str(lake_path), "--no-maintenance", "--json")
    started = json.loads(service.line())
    url = httpx.URL(started["url"])

    def connected() -> socket.socket:
        return socket.create_connection((url.host, url.port), timeout=WAIT_S_MAX)

    def asked(path: str, more: str = "") -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {started['token']}\r\n{more}".encode()

    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connected()) for _ in range(IDLE)]
        for number, sent in enumerate((b"", asked("/health/live"), asked("/health/live", "\r\n"))):
            for connection in idle[number::3]:
                with contextlib.suppress(ConnectionError):  # it has made room
                    connection.sendall(sent)
        for path in ("/health/live", "/health/ready", "/v1/tables") * 10:
            with connected() as other:
                other.sendall(asked(path, "Connection: close\r\n\r\n"))
                assert other.recv(4_096).startswith(b"HTTP/1.1 200 ")
    service.signal(signal.SIGTERM)
    assert service.end()[0] == 0


@pytest.mark.slow
def test_the_first_token_goes_into_a_file_of_its_own(start: Start, lake_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "token"
    for number, options in enumerate(((), ("--json",))):
        process = start("--lake", str(lake_path), "--no-maintenance", "--token-file", str(path), *options)
        said = process.line()
        url = json.loads(said)["url"] if options else said.split()[-1]
        secret = path.read_text().strip()
        assert path.stat().st_mode & 0o777 == 0o600
        authorized = {"Authorization": f"Bearer {secret}"}
        assert httpx.get(f"{url}/v1/tables", headers=authorized).status_code == 200
        process.signal(signal.SIGTERM)
        code, out, err = process.end()
        assert code == 0
        assert secret not in said + out + err
        assert "#code=" not in said + out + err, "who wants no token printed wants no way to one printed"
        assert (str(path) in out) == (number == 0), "the second start has no first token to tell of"
    assert list(tmp_path.glob(".token*")) == []


@pytest.mark.slow
def test_without_a_console(start: Start, lake_path: Path) -> None:
    process = start("--lake", str(lake_path), "--no-maintenance", "--no-console", "--json")
    started = json.loads(process.line())
    assert started["console"] is None
    assert httpx.get(f"{started['url']}/").status_code == 401
    process.signal(signal.SIGTERM)
    assert process.end()[0] == 0


@pytest.mark.parametrize("there", ["file", "link", "folder"])
def test_a_first_token_is_not_written_over_anything(lake_path: Path, tmp_path: Path, there: str) -> None:
    path, other = tmp_path / "token", tmp_path / "other"
    if there == "file":
        path.write_text("mine")
    elif there == "link":
        path.symlink_to(other)
    else:
        path.mkdir()

    assert "exists already" in refused("--lake", str(lake_path), "--no-maintenance", "--token-file", str(path))

    assert not other.exists()
    assert Tokens(lake_path).listed() == []


def test_a_first_token_that_cannot_be_written_lets_nobody_in(lake_path: Path, tmp_path: Path) -> None:
    refused("--lake", str(lake_path), "--no-maintenance", "--token-file", str(tmp_path / "missing/token"))

    assert not Tokens(lake_path).any_valid()


@pytest.fixture
def lake_path(tmp_path: Path) -> Path:
    Lake(tmp_path / "lake").close()
    return tmp_path / "lake"


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["serve", "--port", "0", *arguments])
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers), "it would end this process later"
    assert result.exit_code in (1, 3), result.output
    assert "Traceback" not in result.output
    return str(result.stderr)


@pytest.mark.slow
def test_from_the_first_start_to_the_second(start: Start, lake_path: Path) -> None:
    first = start("--lake", str(lake_path))
    said = first.line()
    url = said.split()[-1]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    assert httpx.get(f"{url}/health/ready").status_code == 200

    lines = [first.line() for _ in range(8)]
    curl = shlex.split(lines[-1])
    assert curl[0] == "curl"
    if shutil.which("curl"):
        shown = subprocess.run([*curl, "--silent"], capture_output=True, text=True, check=True, timeout=WAIT_S_MAX)
        assert json.loads(shown.stdout)["tables"] == []
    secret = curl[2].split()[-1]
    assert secret in lines[-2]
    (console,) = (line.strip() for line in lines if "#code=" in line)
    assert console.startswith(f"{url}/#code=")
    session = httpx.post(f"{url}/v1/session", json={"code": console.partition("=")[2]})
    assert (session.status_code, session.json()["scopes"]) == (201, ["admin"])
    authorized = {"Authorization": f"Bearer {secret}"}
    assert httpx.get(f"{url}/metrics", headers=authorized).status_code == 200

    first.signal(signal.SIGTERM)
    code, out, err = first.end()
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert secret not in err
    assert "route=/metrics status=200" in err

    second = start("--lake", str(lake_path), "--json", "--no-maintenance")
    started = json.loads(second.line())
    assert started["token"] is None
    assert "#code=" in started["console"]
    assert httpx.get(f"{started['url']}/").status_code == 200
    assert httpx.get(f"{started['url']}/metrics", headers=authorized).status_code == 200
    second.signal(signal.SIGINT)
    code, out, err = second.end()
    assert (code, out) == (0, '{"event": "stopped"}\n')
    assert "Traceback" not in err


@pytest.mark.slow
def test_the_second_signal_ends_it_at_once(start: Start, lake_path: Path) -> None:
    process = start("--lake", str(lake_path), "--json", "--no-maintenance")
    started = json.loads(process.line())
    port = int(started["url"].rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S_MAX) as connection:
        # A request under way: the rest of its body never comes.
        connection.sendall(
            b"POST /v1/query/sql HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Type: application/json\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: 100\r\n\r\n" % started["token"].encode()
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        process.signal(signal.SIGINT)
        assert process._child.stderr is not None
        while "stopping" not in process._child.stderr.readline():
            pass
        process.signal(signal.SIGINT)
        code, _, err = process.end()

    assert code == 130
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_demo_lake_is_made_where_there_is_none(start: Start, tmp_path: Path) -> None:
    process = start("--lake", str(tmp_path / "shop"), "--demo", "--json", "--no-maintenance")
    started = json.loads(process.line())
    authorized = {"Authorization": f"Bearer {started['token']}"}

    answer = httpx.post(
        f"{started['url']}/v1/query/sql",
        json={"sql": "select count(*) as n from shop.orders"},
        headers=authorized,
        timeout=WAIT_S_MAX,
    )

    assert answer.json()["rows"] == [[20_000]]
    process.signal(signal.SIGTERM)
    assert process.end()[0] == 0


class TestRefusals:
    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "lake.example"])
    def test_another_address_without_tls(self, lake_path: Path, host: str) -> None:
        said = refused("--lake", str(lake_path), "--host", host)

        assert "--tls-cert" in said
        assert "--insecure" in said
        assert not Tokens(lake_path).listed()

    def test_a_port_in_use(self, lake_path: Path) -> None:
        with listen("127.0.0.1", 0) as taken:
            port = str(taken.getsockname()[1])
            assert f"port {port} of 127.0.0.1 is in use" in refused("--lake", str(lake_path), "--port", port)

    def test_no_lake(self, tmp_path: Path) -> None:
        assert "is no lake" in refused("--lake", str(tmp_path / "nowhere"))

    def test_no_certificate(self, lake_path: Path, tmp_path: Path) -> None:
        here = str(tmp_path / "cert.pem")

        assert "cannot be read" in refused("--lake", str(lake_path), "--tls-cert", here, "--tls-key", here)

    def test_a_certificate_without_its_key(self, lake_path: Path, tmp_path: Path) -> None:
        assert "both --tls-cert and --tls-key" in refused("--lake", str(lake_path), "--tls-cert", str(tmp_path / "c"))

    def test_what_is_no_certificate(self, lake_path: Path, tmp_path: Path) -> None:
        (tmp_path / "cert.pem").write_text("nonsense")
        here = str(tmp_path / "cert.pem")

        assert "no certificate with its key" in refused("--lake", str(lake_path), "--tls-cert", here, "--tls-key", here)

    def test_an_address_of_another_machine(self, lake_path: Path) -> None:
        assert "no address of this machine" in refused("--lake", str(lake_path), "--host", "192.0.2.1", "--insecure")

    def test_a_damaged_file_of_tokens(self, lake_path: Path) -> None:
        Tokens(lake_path).path.write_text("{")

        assert "no token is accepted" in refused("--lake", str(lake_path))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_addresses_of_this_machine_need_no_tls(host: str) -> None:
    check_address(Settings(host=host), insecure=False)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "0", "2130706434", "localhost.example"])
def test_all_others_do(host: str) -> None:
    with pytest.raises(InvalidRequest):
        check_address(Settings(host=host), insecure=False)
    check_address(Settings(host=host), insecure=True)


def in_thread(server: Server, socket: socket.socket) -> threading.Thread:
    thread = threading.Thread(target=server.run, args=([socket],), daemon=True)
    thread.start()
    assert server.ready.wait(WAIT_S_MAX)
    return thread


def test_tls(app: FastAPI, settings: Settings, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for blob in issued.cert_chain_pems:
        blob.write_to_path(str(cert), append=True)
    issued.private_key_pem.write_to_path(str(key))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    server, bound = Server(app, settings, tls=tls_context(cert, key)), listen("127.0.0.1", 0)
    thread = in_thread(server, bound)
    url = f"127.0.0.1:{bound.getsockname()[1]}/health/ready"

    with httpx.Client(verify=context) as client:
        assert client.get(f"https://{url}").status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{url}")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"https://{url}")

    server.should_exit = True
    thread.join(WAIT_S_MAX)
    assert not thread.is_alive()


class TestStopping:
    @pytest.fixture(autouse=True)
    def _probes(self, app: FastAPI) -> None:
        app.state.waiting = threading.Event()
        add_probes(app)

    def test_a_request_under_way_is_answered(self, app: FastAPI, settings: Settings, tokens: Tokens) -> None:
        _, secret = tokens.create("a", ["read"])
        server, bound = Server(app, settings), listen("127.0.0.1", 0)
        thread = in_thread(server, bound)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        answers: list[httpx.Response] = []

        def ask() -> None:
            headers = {"Authorization": f"Bearer {secret}"}
            answers.append(httpx.get(f"{url}/probe/wait/1", headers=headers, timeout=WAIT_S_MAX))

        asking = threading.Thread(target=ask)
        asking.start()
        assert app.state.waiting.wait(WAIT_S_MAX)
        server.should_exit = True
        thread.join(WAIT_S_MAX)
        asking.join(WAIT_S_MAX)

        assert [answer.text for answer in answers] == ['"waited"']
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health/live")

    def test_a_query_that_takes_longer_is_cancelled_and_says_so(self, app: FastAPI, lake: Lake, tokens: Tokens) -> None:
        _, secret = tokens.create("a", ["read"])
        server, bound = Server(app, Settings(shutdown_s=0)), listen("127.0.0.1", 0)
        thread = in_thread(server, bound)
        answers: list[httpx.Response] = []

        def ask() -> None:
            answers.append(
                httpx.post(
                    f"http://127.0.0.1:{bound.getsockname()[1]}/v1/query/sql",
                    json={"sql": ENDLESS},
                    headers={"Authorization": f"Bearer {secret}"},
                    timeout=WAIT_S_MAX,
                )
            )

        asking = threading.Thread(target=ask)
        asking.start()
        eventually(lambda: lake.queries() or not asking.is_alive(), "the query")
        server.should_exit = True
        asking.join(WAIT_S_MAX)
        thread.join(WAIT_S_MAX)

        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(409, "cancelled")]
        assert lake.queries() == []

    def test_work_that_does_not_end_is_not_waited_for(
        self, app: FastAPI, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, secret = tokens.create("a", ["read"])
        app.state.hold = threading.Event()
        monkeypatch.setattr("lithify.http.server.CANCELLED_S", 0.1)
        server, bound = Server(app, Settings(shutdown_s=0)), listen("127.0.0.1", 0)
        thread = in_thread(server, bound)
        with socket.create_connection(bound.getsockname(), timeout=WAIT_S_MAX) as connection:
            connection.sendall(
                b"GET /probe/hold HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % secret.encode()
            )
            assert app.state.waiting.wait(WAIT_S_MAX)
            server.should_exit = True
            answer = connection.recv(65_536)
            thread.join(WAIT_S_MAX)
        assert not thread.is_alive()
        app.state.hold.set()

        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"the service stopped before this was done" in answer

    def test_it_is_not_ready_from_then_on(self, client: Any, service: Service) -> None:
        assert client.get("/health/ready").status_code == 200

        service.stopping = True

        answer = client.get("/health/ready")
        assert answer.status_code == 503
        assert answer.json()["code"] == "unavailable"
        assert client.get("/health/live").status_code == 200

    def test_a_signal_says_so_and_the_second_ends_it(self, app: FastAPI, settings: Settings, service: Service) -> None:
        ends: list[str] = []
        server = Server(app, settings, on_second_signal=lambda: ends.append("now"))

        server.handle_exit(signal.SIGTERM, None)
        assert (service.stopping, server.should_exit, ends) == (True, True, [])

        server.handle_exit(signal.SIGTERM, None)
        assert ends == ["now"]


def test_background_work_that_cannot_start(lake_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITHIFY_VACUUM_CRON", "whenever")

    assert "whenever" in refused("--lake", str(lake_path))


def test_a_port_without_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", forbidden)
    with pytest.raises(Unavailable, match="above 1023"):
        listen("127.0.0.1", 80)
