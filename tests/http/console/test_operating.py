"""The console as an operator uses it: jobs watched and ended, options and columns changed, the doctor asked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from lithify import Cancelled, Lake, Settings
from support.faults import FaultyStore, Gate
from support.folders import memory_folder

from .conftest import Console, MakeConsole, Visiting

pytestmark = pytest.mark.browser
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("amount", pa.int32())])
WAIT_S = 60


def fill(lake: Lake) -> None:
    table = lake.create_table("shop.orders", SCHEMA, key="id")
    table.upsert([{"id": number, "amount": number} for number in range(500)])
    table.fold()
    table.upsert([{"id": 1, "amount": 7}])


@pytest.fixture(scope="module")
def console(make_console: MakeConsole) -> Console:
    return make_console(fill)


class TestJobs:
    @pytest.fixture
    def gate(self) -> Iterator[Gate]:
        gate = Gate()
        yield gate
        gate.open()

    @pytest.fixture
    def busy(self, gate: Gate) -> Iterator[Console]:
        """A service on a lake where a fold waits when its files are written."""
        settings = Settings(port=0, shutdown_s=1)
        with memory_folder() as folder:
            with Lake(folder / "lake", settings=settings) as lake:
                fill(lake)
            with Lake(folder / "lake", settings=settings, store=FaultyStore("fold.written", gate.hold)) as lake:
                console = Console(lake, settings)
                yield console
                gate.open()
                console.stop()

    def test_one_is_seen_as_it_runs_and_ended(self, busy: Console, gate: Gate, visit: Visiting) -> None:
        visited = visit(busy).sign_in(keep=True)
        page = visited.go("#/maintenance", "Maintenance")
        page.get_by_text("No job runs now").wait_for()
        with ThreadPoolExecutor(1) as pool:
            fold = pool.submit(busy.lake.table("shop.orders").fold)
            gate.wait()
            page.get_by_text("500 of 500 rows").wait_for()
            assert visited.violations() == []
            page.get_by_role("button", name="End fold of shop.orders").click()
            page.get_by_role("dialog").get_by_role("button", name="End it").click()
            page.get_by_text("ends", exact=True).wait_for()
            gate.open()
            with pytest.raises(Cancelled, match="by token all"):
                fold.result(WAIT_S)
        page.get_by_text("No job runs now").wait_for()
        happened = page.get_by_role("group", name="What happened a moment ago")
        happened.get_by_text("cancelled").first.wait_for()

    def test_writes_appear_as_they_happen(self, console: Console, visit: Visiting) -> None:
        page = visit(console).sign_in(keep=True).go("#/maintenance", "Maintenance")
        seq = console.lake.table("shop.orders").upsert([{"id": 2, "amount": 8}]).seq
        page.get_by_role("group", name="What happened a moment ago").get_by_text(f"seq {seq}").wait_for()


def test_an_option_is_changed_and_goes_back(console: Console, visit: Visiting) -> None:
    visited = visit(console).sign_in(keep=True)
    page = visited.go("#/table/shop.orders/options", "shop.orders")
    page.get_by_role("button", name="Change compression_level").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New value").fill("99")
    dialog.get_by_role("button", name="Set it").click()
    dialog.get_by_text("a whole number from 1 to 19 ('default'").wait_for()
    assert visited.violations() == []
    dialog.get_by_label("New value").fill("9")
    dialog.get_by_role("button", name="Set it").click()
    page.get_by_role("row", name="compression_level").get_by_text("set here").wait_for()
    assert console.lake.table("shop.orders").options["compression_level"] == 9
    page.get_by_role("button", name="Change compression_level").click()
    dialog.get_by_label("New value").fill("")
    dialog.get_by_role("button", name="Back to the default").click()
    page.get_by_role("row", name="compression_level").get_by_text("set here").wait_for(state="detached")


def test_what_may_delete_for_good_wants_the_name_typed(console: Console, visit: Visiting) -> None:
    page = visit(console).sign_in(keep=True).go("#/table/shop.orders/options", "shop.orders")
    page.get_by_role("button", name="Change vacuum_retain_hours", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New value").fill("24")
    assert dialog.get_by_role("button", name="Set it").is_disabled()
    dialog.get_by_label("Type shop.orders").fill("shop.orders")
    dialog.get_by_role("button", name="Set it").click()
    page.get_by_role("row", name="vacuum_retain_hours ").get_by_text("set here").first.wait_for()


def test_a_column_is_shown_what_becomes_of_it_first(make_console: MakeConsole, visit: Visiting) -> None:
    console = make_console(fill)
    visited = visit(console).sign_in(keep=True)
    page = visited.go("#/table/shop.orders", "shop.orders")
    page.get_by_role("button", name="Rename …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New name").fill("price")
    dialog.get_by_role("button", name="Look what it does").click()
    dialog.get_by_text("id int64, price int32").wait_for()
    dialog.get_by_text("1 file with").wait_for()
    assert visited.violations() == []
    assert "price" not in console.lake.table("shop.orders").definition.names
    dialog.get_by_role("button", name="Do it").click()
    page.get_by_role("rowheader", name="price").wait_for()
    assert "price" in console.lake.table("shop.orders").definition.names


def test_a_reader_is_offered_nothing_to_change(console: Console, visit: Visiting) -> None:
    _, secret = console.tokens.create("reader", ("read",), ("shop.*",))
    visited = visit(console).sign_in(secret, keep=True)
    page = visited.go("#/table/shop.orders/options", "shop.orders")
    page.get_by_role("row", name="compression_level").wait_for()
    assert page.get_by_role("button", name="Change").count() == 0
    visited.go("#/table/shop.orders", "shop.orders")
    assert page.get_by_role("button", name="Rename …").count() == 0
    assert page.get_by_role("link", name="Doctor").count() == 0


def test_the_doctor_looks_again(console: Console, visit: Visiting) -> None:
    page = visit(console).sign_in(keep=True).go("#/doctor", "Doctor")
    page.get_by_role("rowheader", name="table shop.orders").wait_for()
    page.get_by_role("button", name="Look again").click()
    page.get_by_role("rowheader", name="fsync").wait_for()
