"""The console's files: what a browser gets, from where, and under which policy."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lithify import Lake, Settings
from lithify.http.app import create_app
from lithify.http.console.files import console_files
from lithify.http.tokens import Tokens
from support.shared_service import shared_service

STATIC = Path(__file__).parents[3] / "src/lithify/http/console/static"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def stranger() -> Iterator[TestClient]:
    """Has no token."""
    with shared_service() as service:
        yield service.client()


def test_the_page_is_public_and_strict(stranger: TestClient) -> None:
    answer = stranger.get("/")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = {part.strip() for part in answer.headers["Content-Security-Policy"].split(";")}
    assert {
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "require-trusted-types-for 'script'",
        "frame-ancestors 'none'",
    } <= policy
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert "<noscript>" in answer.text


@pytest.mark.parametrize("path", console_files())
def test_every_file_is_answered_with_a_tag_and_not_again(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path)
    again = stranger.get(path, headers={"If-None-Match": answer.headers["ETag"]})

    assert (answer.status_code, again.status_code) == (200, 304)
    assert not again.content
    assert stranger.get(path, headers={"If-None-Match": '"another"'}).status_code == 200
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_file_is_packed_for_those_who_take_it(stranger: TestClient) -> None:
    packed = stranger.get("/console/app.js", headers={"Accept-Encoding": "gzip"})
    plain = stranger.get("/console/app.js", headers={"Accept-Encoding": "identity"})

    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert packed.content == plain.content == (STATIC / "app.js").read_bytes()
    assert packed.headers["ETag"] != plain.headers["ETag"]


def test_a_browser_asks_for_an_icon(stranger: TestClient) -> None:
    assert stranger.get("/favicon.ico").headers["content-type"] == "image/svg+xml"


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/index.html",
        "/console/vendor/VENDOR.md",
        "/console/..%2fapp.js",
        "/index.html",
    ],
)
def test_nothing_besides_is_public(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code == 401


def test_without_a_console_there_is_none(lake: Lake, settings: Settings, tokens: Tokens) -> None:
    client = TestClient(create_app(lake, settings, tokens, with_console=False), "http://127.0.0.1")

    assert {client.get(path).status_code for path in ("/", "/console/app.js", "/favicon.ico")} == {401}


def test_every_module_that_one_imports_is_there() -> None:
    for path in STATIC.rglob("*.js"):
        if "vendor" not in path.parts:
            named = re.findall(r'(?:from |import\(|import )"([^"]+)"', path.read_text())
            assert set(named) <= set(console_files()), path


def test_a_first_page_is_small() -> None:
    """Without the editor, which the SQL page alone loads: 100 kB packed."""
    files = {
        path: file for path, file in console_files().items() if "codemirror" not in path and path != "/favicon.ico"
    }
    sizes = [len(gzip.compress(file.content, 9)) for path, file in files.items() if not path.endswith(".txt")]

    assert sum(sizes) <= 100_000


def test_the_console_never_makes_markup_of_text() -> None:
    for path in STATIC.rglob("*.js"):
        if "vendor" not in path.parts:
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
                assert word not in path.read_text(), path


def test_what_comes_from_elsewhere_is_what_the_list_says() -> None:
    named = re.findall(r"^\| (\S+) \|.*`([0-9a-f]{64})` \|$", (STATIC / "vendor/VENDOR.md").read_text(), re.MULTILINE)
    folders = {"axe.min.js": HERE / "vendor"}
    found = {Path(name).name: digest for name, digest in named}

    assert found.keys() == {"preact.js", "uplot.js", "uplot.css", "codemirror.js", "axe.min.js"}
    for name, digest in found.items():
        content = (folders.get(name, STATIC / "vendor") / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name
    assert "Apache License" in (STATIC / "vendor/LICENSES.txt").read_text()
