"""What a lake can do in a folder, it does in a bucket; what it cannot do there, it refuses and leaves all as it is."""

from __future__ import annotations

import io
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lithify import Lake, LithifyError, Settings, create_backup, restore_backup, verify_backup
from lithify.compute.compute import HereCompute
from lithify.errors import InvalidRequest
from lithify.files.addresses import path_of
from lithify.files.bucket.storage import BucketStorage
from support.fault_proxy import FaultProxy
from support.s3_servers import S3Server
from support.session_tokens import TOKEN, TokenProxy

pytestmark = pytest.mark.bucket

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64())])


@pytest.fixture
def lake(address: str) -> Iterator[Lake]:
    """With a table of five rows, one of which has a change pending."""
    with Lake(f"{address}/lake", create=True) as lake:
        table = lake.create_table("shop.orders", SCHEMA, key="id")
        table.upsert([{"id": i, "v": "x", "n": i} for i in range(5)])
        table.fold()
        table.upsert([{"id": 1, "v": "y", "n": 10}])
        yield lake


def contents(address: str) -> dict[str, bytes]:
    storage, root = BucketStorage(), path_of(address)
    return {name: storage.read(root / name) for name in storage.below(root)}


def rows(lake: Lake) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.sql("select * from shop.orders order by id").to_pylist()]


def test_statements_that_write(lake: Lake, address: str) -> None:
    lake.sql("insert into shop.orders values (7, 'new', 70)")
    lake.sql("update shop.orders set n = n + 1 where id < 2")
    lake.sql("delete from shop.orders where id in (2, 3)")
    lake.sql(
        "merge into shop.orders t using (select 4 as id, 'm' as v union all select 8, 'm') s on t.id = s.id "
        "when matched then update set v = s.v when not matched then insert values (s.id, s.v, 0)"
    )
    lake.sql("create table shop.more (id bigint, d bigint default 3, primary key (id))")
    lake.sql("insert into shop.more (id) values (1)")

    with Lake(f"{address}/lake") as again:
        expected = [(0, "x", 1), (1, "y", 11), (4, "m", 4), (7, "new", 70), (8, "m", 0)]
        assert rows(again) == expected
        again.table("shop.orders").fold()
        assert rows(again) == expected
        assert again.sql("select * from shop.more").to_pylist() == [{"id": 1, "d": 3}]
        again.sql("drop table shop.more")
        assert again.tables() == ["shop.orders"]


def test_columns_change(lake: Lake, address: str) -> None:
    table = lake.table("shop.orders")
    table.tag("before")
    table.rename_column("v", "name")
    table.drop_column("n")
    table.add_column(pa.field("k", pa.int64()), default=4)
    table.upsert([{"id": 9, "name": "z"}])

    with Lake(f"{address}/lake") as again:
        found = again.table("shop.orders")
        assert found.get(1) == {"id": 1, "name": "y", "k": None}
        assert found.get(9) == {"id": 9, "name": "z", "k": 4}
        assert found.to_arrow(as_of="before").column_names == ["id", "v", "n"]
        found.fold()
        assert found.to_arrow().column_names == ["id", "name", "k"]


def test_a_table_goes_back(lake: Lake, address: str) -> None:
    table = lake.table("shop.orders")
    table.delete_where("id > 0")
    table.fold()
    table.restore(1)

    with Lake(f"{address}/lake") as again:
        assert rows(again) == [(i, "x", i) for i in range(5)]


def test_records_that_were_set_aside_are_tried_again(lake: Lake, address: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"id": 5, "v": "q", "n": 1}\n{"id": 6, "v": "q", "n": 1, "more": 2}\n{"id": "bad", "v": "q", "n": 1}\n'
    )
    lake.ingest("shop.orders", str(file), on_bad_record="quarantine")

    with Lake(f"{address}/lake") as again:
        table = again.table("shop.orders")
        (aside,) = table.quarantine()
        assert len(table.quarantined(aside.name)) == 2
        table.add_column(pa.field("more", pa.int64()))
        done = table.retry_quarantine(aside.name, missing="null")
        assert (done.written, done.left) == (1, 1)
        assert table.get(6) == {"id": 6, "v": "q", "n": 1, "more": 2}
        assert len(table.quarantined(aside.name)) == 1
        table.purge_quarantine(aside.name)
        assert not table.quarantine()


def test_an_erasure_is_refused_and_nothing_is_changed(lake: Lake, address: str) -> None:
    before = contents(address)

    with pytest.raises(InvalidRequest, match="does not work on a lake in a bucket"):
        lake.erase("shop.orders", [{"id": 1}])

    assert contents(address) == before


def test_a_backup_from_one_place_in_a_bucket_to_another(lake: Lake, address: str) -> None:
    create_backup(lake, f"{address}/backups")
    lake.table("shop.orders").upsert([{"id": 2, "v": "later", "n": 0}])
    create_backup(lake, f"{address}/backups")

    assert verify_backup(f"{address}/backups")[1] == []
    restore_backup(f"{address}/backups", f"{address}/restored")
    with Lake(f"{address}/restored") as restored:
        assert rows(restored) == rows(lake)
        restored.table("shop.orders").upsert([{"id": 3, "v": "here", "n": 0}])
    assert lake.table("shop.orders").get(3) == {"id": 3, "v": "x", "n": 3}


def test_keys_that_may_only_read(lake: Lake, proxy: FaultProxy, address: str) -> None:
    """They open a lake, and read all of it; whatever would write is refused by name."""
    lake.table("shop.orders").tag("one")
    lake.close()
    before = contents(address)
    for method in ("PUT", "DELETE", "COPY"):
        proxy.fail("403", method, times=None)

    with Lake(f"{address}/lake") as reader:
        table = reader.table("shop.orders")
        assert table.get(1) == {"id": 1, "v": "y", "n": 10}
        assert reader.tables() == ["shop.orders"]
        assert len(rows(reader)) == 5
        assert reader.query("select count(*) as n from shop.orders").rows.to_pylist() == [{"n": 5}]
        for then in (1, "one"):
            assert table.to_arrow(as_of=then).num_rows == 5
        assert len(table.history()) > 1
        assert table.feed(0).num_rows > 0
        assert table.stats().seq == 2
        writes: list[Callable[[], object]] = [
            lambda: table.upsert([{"id": 1, "v": "z", "n": 0}]),
            table.fold,
            lambda: reader.create_table("shop.more", SCHEMA, key="id"),
            lambda: reader.drop_table("shop.orders"),
            lambda: table.tag("two"),
            lambda: table.pin().__enter__(),
        ]
        for write in writes:
            with pytest.raises(LithifyError, match="keys do not allow this"):
                write()

    proxy.heal()
    assert contents(address) == before


def test_a_declared_stream_without_a_folder_of_its_own_is_refused(address: str, tmp_path: Path) -> None:
    declared = Settings(streams={"files": {"source": str(tmp_path), "target": "shop.orders"}})
    with (
        Lake(f"{address}/lake", create=True, settings=declared) as lake,
        pytest.raises(InvalidRequest, match=r'stream files .* name one with checkpoint = "DIR"'),
    ):
        lake.start_pipelines()


class TestKeysAreWrittenNowhere:
    @pytest.fixture
    def secrets(self, s3: S3Server) -> list[bytes]:
        return [s3.secret_key.encode(), s3.access_key.encode(), TOKEN.encode()]

    def test_one_life_of_a_table(
        self, s3: S3Server, address: str, secrets: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In no log, no object, no copy, no order of a worker and no task."""
        told, tasks = io.StringIO(), list[bytes]()
        handler, root = logging.StreamHandler(told), logging.getLogger()
        before = root.level
        root.setLevel(logging.DEBUG)  # which has all loggers forget what an earlier level was
        monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
        run = HereCompute.run

        def noted(here: HereCompute, function: Callable[[object], object], given: Sequence[object]) -> list[object]:
            """As a worker and its executors would get them, and answer."""
            done = run(here, function, given)
            tasks.extend(pickle.dumps(each) for each in (*given, *done))
            return done

        monkeypatch.setattr(HereCompute, "run", noted)
        root.addHandler(handler)
        try:
            with TokenProxy(s3) as proxy:
                monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.server.url)
                _one_life(address, tmp_path)
                assert (proxy.without, bool(proxy.requests)) == (0, True)
        finally:
            root.removeHandler(handler)
            root.setLevel(before)

        monkeypatch.delenv("AWS_SESSION_TOKEN")
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
        copies = Path(os.environ["LITHIFY_CACHE_FOLDER"])
        logged, stored = told.getvalue().encode(), contents(address)
        kept = {str(file): file.read_bytes() for file in copies.rglob("*") if file.is_file()}
        assert all((logged, kept, stored, tasks))
        for secret in secrets:
            assert secret not in logged
            assert [name for name, content in {**kept, **stored}.items() if secret in content] == []
            assert not any(secret in task for task in tasks)


def _one_life(address: str, folder: Path) -> None:
    (folder / "bad.jsonl").write_text('{"id": 1, "name": "q"}\n{"id": "bad", "name": "q"}\n')
    with Lake(f"{address}/lake", create=True, settings=Settings(checkpoint_every=2)) as lake:
        table = lake.create_table("shop.orders", SCHEMA, key="id")
        for number in range(4):
            table.upsert([{"id": i, "v": "x", "n": number} for i in range(number, 100)])
            table.fold()
        table.delete([1])
        table.compact()
        table.optimize(["v"])
        table.tag("one")
        table.rename_column("v", "name")
        table.drop_column("n")
        lake.sql("update shop.orders set name = 'z' where id < 5")
        lake.ingest("shop.orders", str(folder / "bad.jsonl"), on_bad_record="quarantine")
        lake.query("select count(*) from shop.orders")
        table.vacuum(dry_run=False)
        lake.maintain()
        create_backup(lake, f"{address}/backups")
        lake.create_table("shop.more", SCHEMA, key="id")
        lake.drop_table("shop.more")
