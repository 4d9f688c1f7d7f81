"""A browser: Debian's Chromium, driven by playwright. Where one of them is missing, these tests are left out."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lithify import Lake, Settings
from lithify.http.app import create_app
from lithify.http.server import Server, listen
from lithify.http.tokens import Tokens
from support.folders import memory_folder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
WAIT_MS = 30_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """No longer than its tests: a loop of playwright's runs in this thread meanwhile, and others start their own."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is not installed")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no browser tests: there is no chromium (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Console:
    """A service on a socket of 127.0.0.1 and a token that may do everything; it can stop and come back."""

    def __init__(self, lake: Lake, settings: Settings) -> None:
        self.lake, self._settings = lake, settings
        self.tokens = Tokens(lake.path)
        self.token, self.secret = self.tokens.create("all", ("admin",))
        self._port = 0
        self.start()

    def start(self) -> None:
        socket = listen("127.0.0.1", self._port)
        self._port = socket.getsockname()[1]
        self.app = create_app(self.lake, self._settings, self.tokens)
        self._server = Server(self.app, self._settings)
        self._thread = threading.Thread(target=self._server.run, args=([socket],), name="console", daemon=True)
        self._thread.start()
        assert self._server.ready.wait(30)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def code_url(self) -> str:
        return f"{self.url}#code={self.app.state.service.sign_in.code(('admin',))}"


MakeConsole = Callable[..., Console]


@pytest.fixture(scope="module")
def make_console() -> Iterator[MakeConsole]:
    """`make_console(fill)`: a service on a new lake that `fill` has filled. Settings besides are named."""
    made: list[tuple[Console, Lake]] = []
    with memory_folder() as folder:

        def make(fill: Callable[[Lake], Any], **chosen: Any) -> Console:
            settings = Settings(port=0, shutdown_s=1, cache_bytes_max=64 * 2**20, **chosen)
            path = folder / f"lake{len(made)}"
            with Lake(path, settings=settings) as filled:
                fill(filled)
            lake = Lake(path, settings=settings)
            made.append((Console(lake, settings), lake))
            return made[-1][0]

        yield make
        for console, lake in made:
            console.stop()
            lake.close()


class Visit:
    """A page of the console, signed in, and whatever the browser complained about."""

    def __init__(self, page: Page, console: Console) -> None:
        self.page, self.console = page, console
        self.complaints: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        # What the service refused is told there, too: that is for the test to look at.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def sign_in(self, secret: str | None = None, *, keep: bool = False) -> Visit:
        self.page.goto(self.console.url)
        self.page.get_by_label("Token").fill(secret or self.console.secret)
        if keep:
            self.page.get_by_label("Keep it in this tab").check()
        self.page.get_by_role("button", name="Sign in").click()
        self.page.locator("header.top").wait_for()
        return self

    def go(self, hash: str, heading: str) -> Page:
        """To a page, when all that it asked for is there."""
        self.page.goto(f"{self.console.url}{hash}")
        self.page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()
        self.settled()
        return self.page

    def settled(self) -> None:
        self.page.locator("main .loading").first.wait_for(state="detached")

    def violations(self) -> list[str]:
        """What axe-core finds on the page as it is."""
        self.page.evaluate(AXE.read_text() + "\n;undefined")
        found = self.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['target']} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]


Visiting = Callable[..., Visit]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visiting]:
    """`visit(console, "dark")`: a new window. At the end, nothing may have been complained about."""
    visits: list[Visit] = []

    def make(console: Console, scheme: str = "light", **options: Any) -> Visit:
        context = browser.new_context(**{"color_scheme": scheme, "reduced_motion": "reduce", **options})
        visits.append(Visit(context.new_page(), console))
        return visits[-1]

    yield make
    for each in visits:
        each.page.context.close()
    assert [complaint for each in visits for complaint in each.complaints] == []
