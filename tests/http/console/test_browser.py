"""The console in a real browser: what it shows, what it never does, and how it looks when something is wrong."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lithify import InvalidRequest, Lake
from lithify.jobs import leases
from lithify.lake.internals import internals
from lithify.pipelines.past_runs import remember
from lithify.pipelines.reports import PipelineReport, StepReport

from .conftest import Console, MakeConsole, Visiting

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror='document.title=1'>"
SCRIPT = "</script><script>document.title=2</script>"
START = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
ORDERS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("<b>note", pa.string()),
        pa.field("placed", pa.timestamp("us", "UTC")),
    ]
)


def row(id: int, note: str | None) -> dict[str, Any]:
    return {"id": id, "<b>note": note, "placed": START + dt.timedelta(hours=id)}


def fill(lake: Lake) -> None:
    """Orders with hostile values and a past, a table without a key, one without rows, and one that is damaged."""
    orders = lake.create_table("shop.orders", ORDERS, key="id")
    orders.upsert([row(number, f"note {number}") for number in range(40)])
    orders.fold()
    orders.upsert([row(1, HOSTILE), row(2, SCRIPT)])
    orders.delete([7], reason=HOSTILE)
    lake.create_table("log.events", pa.schema([pa.field("what", pa.string())])).append([{"what": "a"}])
    lake.create_table("log.nothing", pa.schema([pa.field("id", pa.int64(), nullable=False)]), key="id")
    lake.create_table("log.damaged", pa.schema([pa.field("id", pa.int64(), nullable=False)]), key="id").upsert(
        [{"id": 1}]
    )
    bad = Path(lake.path).with_name("bad.json")
    bad.write_text(f'{{"id": {json.dumps(HOSTILE)}}}\n{{"id": 50}}\n')
    with pytest.raises(InvalidRequest, match="all 2 were set aside"):
        lake.ingest("shop.orders", str(bad), on_bad_record="quarantine")
    for path in Path(lake.path, "log/damaged/changes/_delta_log").glob("*.json"):
        path.write_text("garbage\n")


SALES: dict[str, Any] = {
    "on": "shop.orders",
    "steps": [
        {"name": "clean", "table": "shop.orders", "target": "shop.clean", "key": "id", "sql": "select id from source"},
        {
            "name": "daily",
            "table": "shop.clean",
            "target": "shop.daily",
            "key": "id",
            "expect": [{"name": HOSTILE, "that": "id > 0", "otherwise": "quarantine"}],
        },
        {"name": "inbox", "files": "nowhere/*.json", "target": "shop.inbox", "key": "id"},
    ],
}
EVENTS = {"steps": [{"table": "log.events", "target": "log.copy", "key": [], "mode": "append"}], "cron": "0 3 * * *"}
PIPELINES = {"sales": SALES, "events": EVENTS}


def fill_runs(lake: Lake) -> None:
    fill(lake)
    for number, outcome in enumerate(("done", "failed")):
        step = StepReport(
            "sales.clean",
            "rows",
            outcome,
            "shop.orders",
            "shop.clean",
            "changes",
            1,
            2,
            written=7,
            quarantined=3,
            warned={HOSTILE: 4},
        )
        reason = HOSTILE if outcome == "failed" else None
        report = PipelineReport("sales", f"run{number}", 1_800_000_000_000 + number, outcome, [step], 1.5, reason)
        remember(internals(lake).runtime, report)


@pytest.fixture(scope="module")
def console(make_console: MakeConsole) -> Console:
    return make_console(fill_runs, pipelines=PIPELINES)


class TestSigningIn:
    def test_by_the_address_that_was_printed(self, console: Console, visit: Visiting) -> None:
        page = visit(console).page
        page.goto(console.code_url())
        page.get_by_role("heading", level=1, name="lake0").wait_for()
        assert page.url == console.url
        assert page.evaluate("() => sessionStorage.length + localStorage.length + document.cookie.length") == 0
        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Token").wait_for()
        assert not any(token.name == "console" and token.revoked_at is None for token in console.tokens.listed())

    def test_an_address_that_was_used_says_so(self, console: Console, visit: Visiting) -> None:
        page = visit(console).page
        page.goto(f"{console.url}#code=used")
        page.get_by_text("the sign-in code is not valid").wait_for()
        assert page.url == console.url

    def test_a_token_is_kept_for_the_tab_only_if_that_is_ticked(self, console: Console, visit: Visiting) -> None:
        for keep in (True, False):
            page = visit(console).sign_in(keep=keep).page
            page.reload()
            page.locator("header.top" if keep else "form").wait_for()

    def test_a_wrong_token_is_told_and_may_be_typed_again(self, console: Console, visit: Visiting) -> None:
        page = visit(console).page
        page.goto(console.url)
        page.get_by_label("Token").fill("lith_wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("the token is not valid").wait_for()
        page.get_by_label("Token").fill(console.secret)
        page.get_by_role("button", name="Sign in").click()
        page.locator("header.top").wait_for()

    def test_a_revoked_token_leads_back_to_the_door(self, console: Console, visit: Visiting) -> None:
        token, secret = console.tokens.create("short", ("read",))
        page = visit(console).sign_in(secret).page
        console.tokens.revoke(token.id)
        page.evaluate("() => { location.hash = '#/cache' }")  # the page's own refresh may have found out before
        page.get_by_text("You are signed out").wait_for()

    def test_without_javascript_there_is_a_note(self, console: Console, visit: Visiting) -> None:
        page = visit(console, java_script_enabled=False).page
        page.goto(console.url)
        assert "The console is a page of JavaScript" in page.content()
        assert page.get_by_role("link", name="what the service can do").is_visible()


PAGES = [
    ("#/", "lake0"),
    ("#/table/shop.orders", "shop.orders"),
    ("#/table/shop.orders/files", "shop.orders"),
    ("#/table/shop.orders/time", "shop.orders"),
    ("#/table/shop.orders/history", "shop.orders"),
    ("#/table/shop.orders/quarantine", "shop.orders"),
    ("#/table/shop.orders/options", "shop.orders"),
    ("#/table/log.nothing/files", "log.nothing"),
    ("#/table/log.nothing/time", "log.nothing"),
    ("#/table/log.damaged", "log.damaged"),
    ("#/sql", "SQL"),
    ("#/maintenance", "Maintenance"),
    ("#/pipelines", "Pipelines"),
    ("#/pipelines/sales", "sales"),
    ("#/pipelines/events", "events"),
    ("#/time", "Over time"),
    ("#/cache", "Cache and queries"),
    ("#/doctor", "Doctor"),
    ("#/tokens", "Tokens"),
    ("#/nowhere", "There is no such page"),
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(console: Console, visit: Visiting, scheme: str) -> None:
    found: dict[str, list[str]] = {}
    guest = visit(console, scheme)
    guest.page.goto(console.url)
    guest.page.get_by_label("Token").wait_for()
    found["sign in"] = guest.violations()
    signed_in = guest.sign_in(keep=True)
    for hash, heading in PAGES:
        signed_in.go(hash, heading)
        found[hash] = signed_in.violations()
    assert {hash: said for hash, said in found.items() if said} == {}


def test_no_page_is_wider_than_a_narrow_window(console: Console, visit: Visiting) -> None:
    signed_in = visit(console, viewport={"width": 390, "height": 800}).sign_in(keep=True)
    for hash, heading in PAGES:
        page = signed_in.go(hash, heading)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390, hash


def test_records_that_were_set_aside_are_tried_again_and_purged(make_console: MakeConsole, visit: Visiting) -> None:
    console = make_console(fill)
    (aside,) = console.lake.table("shop.orders").quarantine()
    page = visit(console).sign_in(keep=True).go("#/table/shop.orders/quarantine", "shop.orders")
    page.get_by_role("button", name=aside.name).click()
    page.get_by_role("group", name="Records").get_by_text(HOSTILE.split("'")[0]).first.wait_for()
    assert page.locator("img[src=x]").count() == 0
    page.get_by_role("button", name="Try them again").click()
    page.get_by_text("0 records written, 2 left").wait_for()
    console.lake.table("shop.orders").set_options({"missing_columns": "null"})
    page.get_by_role("button", name="Try them again").click()
    page.get_by_text("1 record written, 1 left").wait_for()
    assert console.lake.table("shop.orders").get(50) is not None
    page.get_by_role("button", name="Purge them").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge them").click()
    page.get_by_text("Nothing was set aside").wait_for()
    assert console.lake.table("shop.orders").quarantine() == []


class TestPipelines:
    def test_they_say_how_far_behind_they_are_and_what_failed(self, console: Console, visit: Visiting) -> None:
        signed_in = visit(console).sign_in(keep=True)
        page = signed_in.go("#/pipelines", "Pipelines")
        row = page.get_by_role("row", name="sales").inner_text()
        assert "when shop.orders changes" in row
        assert "3 seqs" in row
        assert "failing" in row
        page.get_by_role("link", name="sales").click()
        page.get_by_role("img", name="sales.clean makes shop.clean of shop.orders, 3 seqs behind").wait_for()
        page.get_by_role("group", name="Steps of these runs").get_by_text(f"{HOSTILE}: 4 rows").first.wait_for()
        page.get_by_text("The last run failed").wait_for()
        assert page.locator("img[src=x]").count() == 0
        page.get_by_role("link", name="3", exact=True).first.click()
        page.get_by_role("heading", level=1, name="shop.clean").wait_for()

    def test_a_run_shows_its_dry_run_first(self, make_console: MakeConsole, visit: Visiting) -> None:
        inbox = {"steps": [{"name": "s", "files": "nowhere/*.json", "target": "a.b", "key": "id"}]}
        console = make_console(lambda lake: None, pipelines={"inbox": inbox})
        page = visit(console).sign_in(keep=True).go("#/pipelines/inbox", "inbox")
        page.get_by_role("button", name="Run …").click()
        question = page.get_by_role("dialog")
        question.get_by_text("There is nothing to do: no files yet.").wait_for()
        assert console.lake.pipeline_status("inbox")[0].last is None
        question.get_by_role("button", name="Run it").click()
        page.get_by_text("The run has begun.").wait_for()
        page.get_by_text("idle").first.wait_for()

    def test_one_that_runs_cannot_be_started_and_a_reader_has_no_button(
        self, console: Console, visit: Visiting
    ) -> None:
        runtime = internals(console.lake).runtime
        ours, lease = leases.acquire(runtime, "pipeline-sales", "theirs", 600, "pipeline sales")
        assert ours
        page = visit(console).sign_in(keep=True).go("#/pipelines/sales", "sales")
        page.get_by_text("running").first.wait_for()
        assert page.get_by_role("button", name="Run …").is_disabled()
        leases.release(runtime, lease)
        _, secret = console.tokens.create("watcher", ("read",), ("log.*",))
        signed_in = visit(console).sign_in(secret, keep=True)
        page = signed_in.go("#/pipelines/events", "events")
        page.get_by_text("at 0 3 * * * (UTC)").first.wait_for()
        assert page.get_by_role("button", name="Run …").count() == 0
        page = signed_in.go("#/pipelines/sales", "sales")
        page.get_by_role("alert").first.wait_for()

    def test_without_any_the_page_says_how_they_are_declared(self, make_console: MakeConsole, visit: Visiting) -> None:
        page = visit(make_console(lambda lake: None)).sign_in(keep=True).go("#/pipelines", "Pipelines")
        page.get_by_text("No pipelines are declared").wait_for()


class TestHostileValues:
    def test_they_are_text_on_every_page(self, console: Console, visit: Visiting) -> None:
        signed_in = visit(console).sign_in(keep=True)
        page = signed_in.go("#/table/shop.orders/time", "shop.orders")
        page.get_by_role("group", name="Rows").get_by_text(HOSTILE).wait_for()
        page.get_by_role("group", name="Rows").get_by_text(SCRIPT).wait_for()
        page = signed_in.go("#/table/shop.orders/history", "shop.orders")
        page.get_by_text(HOSTILE).wait_for()
        assert page.locator("img[src=x]").count() == 0
        assert page.title().startswith("shop.orders")

    def test_an_address_is_a_name_and_nothing_else(self, console: Console, visit: Visiting) -> None:
        page = (
            visit(console)
            .sign_in(keep=True)
            .go("#/table/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "<img src=x onerror=alert(1)>")
        )
        page.get_by_role("alert").wait_for()
        assert page.locator("img[src=x]").count() == 0

    def test_the_policy_holds(self, console: Console, visit: Visiting) -> None:
        """What a mistake in the page would do: markup from text, inline code, and calls of others."""
        signed_in = visit(console).sign_in()
        refused = signed_in.page.evaluate(
            """async () => {
                const tried = [];
                try { document.body.innerHTML = "<b>x</b>"; tried.push("markup") } catch {}
                try { trustedTypes.createPolicy("mine", {}); tried.push("policy") } catch {}
                try { await fetch("http://127.0.0.2:9/"); tried.push("elsewhere") } catch {}
                const script = document.createElement("script");
                try { script.text = "document.title = 'hit'"; tried.push("script") } catch {}
                return tried;
            }"""
        )
        assert refused == []
        signed_in.complaints.clear()


class TestTrouble:
    def test_a_damaged_table_is_told_and_the_others_go_on(self, console: Console, visit: Visiting) -> None:
        signed_in = visit(console).sign_in(keep=True)
        page = signed_in.go("#/", "lake0")
        assert "is not readable" in page.get_by_role("row", name="log.damaged").inner_text()
        assert "nothing is due" in page.get_by_role("row", name="log.events").inner_text()
        page = signed_in.go("#/table/log.damaged", "log.damaged")
        page.get_by_text("Something is damaged").wait_for()

    def test_a_service_that_stops_and_comes_back(self, make_console: MakeConsole, visit: Visiting) -> None:
        console = make_console(lambda lake: lake.create_table("a.b", ORDERS, key="id"))
        signed_in = visit(console).sign_in(keep=True)
        page = signed_in.go("#/cache", "Cache and queries")
        console.stop()
        page.get_by_text("The service does not answer.").wait_for()
        assert page.get_by_text("No query runs now").is_visible()
        console.start()
        page.locator(".banner").wait_for(state="detached")

    def test_an_empty_lake(self, make_console: MakeConsole, visit: Visiting) -> None:
        signed_in = visit(make_console(lambda lake: None)).sign_in(keep=True)
        signed_in.page.get_by_text("The lake is empty").wait_for()
        signed_in.page.get_by_role("link", name="SQL").click()
        signed_in.page.get_by_text("There is no table to ask").wait_for()

    def test_a_reader_sees_no_button_that_it_may_not_press(self, console: Console, visit: Visiting) -> None:
        _, secret = console.tokens.create("reader", ("read",), ("shop.*",))
        signed_in = visit(console).sign_in(secret, keep=True)
        page = signed_in.go("#/table/shop.orders", "shop.orders")
        page.get_by_role("group", name="Columns").wait_for()
        assert page.get_by_role("button", name="Fold").count() == 0
        assert page.get_by_role("link", name="Tokens").count() == 0
        page = signed_in.go("#/table/log.events", "log.events")
        page.get_by_text("This token may not do that").wait_for()

    def test_a_writer_is_told_that_there_is_nothing_to_look_at(self, console: Console, visit: Visiting) -> None:
        _, secret = console.tokens.create("writer", ("write",))
        page = visit(console).sign_in(secret).page
        page.get_by_role("heading", level=1, name="There is nothing to look at").wait_for()


class TestWork:
    def test_a_query_is_run_explained_and_downloaded(self, console: Console, visit: Visiting) -> None:
        page = visit(console).sign_in(keep=True).go("#/sql", "SQL")
        page.locator(".cm-content").click()
        page.keyboard.type("select count(*) as n from shop.orders where id < 5")
        page.keyboard.press("Escape")
        page.keyboard.press("Control+Enter")
        answer = page.get_by_role("group", name="The answer", exact=True)
        answer.wait_for()
        assert answer.get_by_role("cell").all_inner_texts() == ["5"]
        page.get_by_role("button", name="Explain").click()
        page.get_by_text("What it reads of shop.orders").wait_for()
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        assert Path(download.value.path()).read_text() == "n\n5\n"
        assert "select" not in page.url

    def test_the_editor_completes_tables(self, console: Console, visit: Visiting) -> None:
        page = visit(console).sign_in(keep=True).go("#/sql", "SQL")
        page.get_by_role("button", name="shop.orders").wait_for()
        page.locator(".cm-content").click()
        page.keyboard.type("select * from shop.or")
        page.locator(".cm-tooltip-autocomplete").get_by_text("orders").wait_for()

    def test_a_query_that_cannot_be_run_says_why(self, console: Console, visit: Visiting) -> None:
        page = visit(console).sign_in(keep=True).go("#/sql", "SQL")
        page.locator(".cm-content").click()
        page.keyboard.type("select nope from shop.orders")
        page.get_by_role("button", name="Run", exact=True).click()
        page.get_by_role("alert").get_by_text("nope").wait_for()

    def test_the_past_and_what_changed_since(self, console: Console, visit: Visiting) -> None:
        page = visit(console).sign_in(keep=True).go("#/table/shop.orders/time", "shop.orders")
        changed = page.get_by_role("group", name="Differences")
        changed.get_by_text("delete").wait_for()
        slider = page.get_by_role("slider", name="Position")
        slider.focus()
        slider.press("ArrowLeft")
        changed.get_by_text("update").first.wait_for()
        assert changed.locator("td.changed .was").first.inner_text() == "note 1"
        slider.press("Home")
        page.get_by_text("No row").wait_for()

    def test_pictures_say_in_words_what_they_show(self, console: Console, visit: Visiting) -> None:
        page = visit(console).sign_in(keep=True).go("#/table/shop.orders/files", "shop.orders")
        sizes = page.get_by_role("img", name="Files by size")
        assert "3 files" in (sizes.get_attribute("aria-label") or "")
        groups = page.get_by_role("img", name="Row groups by key range")
        assert "1 row group by id" in (groups.get_attribute("aria-label") or "")
        page.get_by_label("Column").select_option("placed")
        page.get_by_role("img", name="1 row group by placed").wait_for()

    def test_lines_over_time(self, console: Console, visit: Visiting) -> None:
        for _ in range(3):
            console.app.state.service.series.take(console.lake)
        page = visit(console).sign_in(keep=True).go("#/time", "Over time")
        page.get_by_role("img", name="Rows of changes that are not folded yet.").locator("canvas").wait_for()

    def test_a_fold_shows_its_dry_run_first(self, make_console: MakeConsole, visit: Visiting) -> None:
        console = make_console(lambda lake: lake.create_table("a.b", ORDERS, key="id").upsert([row(1, "x")]))
        page = visit(console).sign_in(keep=True).go("#/table/a.b", "a.b")
        page.get_by_role("button", name="Fold").click()
        question = page.get_by_role("dialog")
        question.get_by_text("1 with 1 row").wait_for()
        assert console.lake.table("a.b").stats().pending_rows == 1
        question.get_by_role("button", name="Fold").click()
        question.wait_for(state="detached")
        assert console.lake.table("a.b").stats().pending_rows == 0

    def test_a_vacuum_wants_the_name_typed(self, console: Console, visit: Visiting) -> None:
        page = visit(console).sign_in(keep=True).go("#/table/shop.orders", "shop.orders")
        page.get_by_role("button", name="Vacuum").click()
        question = page.get_by_role("dialog")
        act = question.get_by_role("button", name="Vacuum")
        act.wait_for()
        assert act.is_disabled()
        question.get_by_label("Type shop.orders").fill("shop.order")
        assert act.is_disabled()
        question.get_by_label("Type shop.orders").fill("shop.orders")
        assert act.is_enabled()
        page.keyboard.press("Escape")
        question.wait_for(state="detached")

    def test_a_token_is_made_and_shown_once(self, console: Console, visit: Visiting) -> None:
        page = visit(console).sign_in(keep=True).go("#/tokens", "Tokens")
        page.get_by_label("Who uses it").fill("dash")
        page.get_by_role("button", name="Make it").click()
        secret = page.get_by_role("status").locator("pre").inner_text()
        assert console.tokens.find(secret) is not None
        page.get_by_role("button", name="Hide it").click()
        assert secret not in page.content()


def test_many_tables_come_page_by_page(make_console: MakeConsole, visit: Visiting) -> None:
    def many(lake: Lake) -> None:
        for number in range(52):
            lake.create_table(f"ns.t{number:03d}", pa.schema([pa.field("id", pa.int64())]))

    page = visit(make_console(many)).sign_in(keep=True).page
    page.get_by_role("link", name="ns.t049").wait_for()
    page.get_by_role("button", name="Further").click()
    page.get_by_role("link", name="ns.t051").wait_for()
    assert page.get_by_role("link", name="ns.t049").count() == 0
    page.get_by_label("Find a table").fill("t01")
    page.get_by_role("link", name="ns.t019").wait_for()
    assert page.get_by_role("table").get_by_role("link").count() == 10
