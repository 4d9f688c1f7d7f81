"""What is wrong with an address, keys, a clock or an object is told by its name, soon, and nothing is changed."""

from __future__ import annotations

import contextlib
import random
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePath

import pyarrow as pa
import pytest

import lithify.files.bucket.reads
from lithify import Lake
from lithify.delta.folder import commit_name
from lithify.errors import Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.addresses import BucketPath, path_of
from lithify.files.bucket.client import _client
from lithify.files.bucket.reads import fetch
from lithify.files.bucket.storage import BucketStorage
from lithify.files.local_files import copies
from lithify.files.os_errors import InDoubt
from lithify.tools.check import Status
from lithify.tools.doctor import check_table
from support.fault_proxy import FaultProxy
from support.s3_servers import SERVERS, S3Server, free_port

pytestmark = pytest.mark.bucket
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
REQUESTS_MAX = 30  # however long each takes
CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "blank": lambda content: b" \n",
    "first line": lambda content: content.splitlines(keepends=True)[0],
}


@pytest.fixture
def lake(proxy: FaultProxy, address: str) -> Iterator[Lake]:
    """With a table of one row, through the proxy."""
    with Lake(address, create=True) as lake:
        lake.create_table("shop.orders", SCHEMA, key="id").upsert([{"id": 1, "v": "a"}])
        yield lake


def _objects(address: str) -> list[str]:
    return list(BucketStorage().below(path_of(address)))


class TestWhereTheServerIs:
    def test_nobody_listens_there(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")

        with pytest.raises(Unavailable, match=r"cannot be reached.*check AWS_ENDPOINT_URL"):
            Lake(address, create=True)

    @pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"])
    @pytest.mark.parametrize(
        "text", ["localhost:9000", "s3.example.com", "http://", "http://a b", "http://[x]", "ftp://a"]
    )
    def test_it_is_no_address(self, address: str, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        monkeypatch.setenv(name, text)

        with pytest.raises(InvalidRequest, match=f"{name} is '.*': write a server's address"):
            Lake(address, create=True)

    @pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"])
    @pytest.mark.parametrize("text", ["http://user:hunter2@127.0.0.1:9", "user:hunter2@host", "https://hunter2@host/a"])
    def test_it_is_said_with_a_password(
        self, address: str, monkeypatch: pytest.MonkeyPatch, name: str, text: str
    ) -> None:
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        monkeypatch.setenv(name, text)

        with pytest.raises(InvalidRequest, match=f"{name} holds an '@'.*without user and password") as raised:
            Lake(address, create=True)

        assert "hunter2" not in "".join(traceback.format_exception(raised.value))

    @pytest.mark.parametrize(
        "text",
        [
            "s3://AKIA:hunter2@bucket/x",
            "s3a://AKIA:hun/hunter2@bucket/x",
            "s3:/AKIA:hunter2@bucket/x",
            "s3://hunter2@bucket",
            "https://user:hunter2@host/a",
            "abfss://hunter2@account/a",
        ],
    )
    def test_a_key_in_an_address_is_not_repeated(self, text: str) -> None:
        with pytest.raises(InvalidRequest) as raised:
            Lake(text, create=True)

        assert "hunter2" not in "".join(traceback.format_exception(raised.value))

    def test_it_is_no_object_store(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with _web_server() as url:
            monkeypatch.setenv("AWS_ENDPOINT_URL", url)

            with pytest.raises(Unavailable, match="AWS_ENDPOINT_URL"):
                Lake(address, create=True)

    @pytest.mark.parametrize("s3", SERVERS, indirect=True)
    def test_it_has_no_such_bucket(self, s3: S3Server) -> None:
        with pytest.raises(Unavailable, match="there is no bucket elsewhere: create it, or correct the lake's address"):
            Lake("s3://elsewhere/lake", create=True)
        with pytest.raises(Unavailable, match="there is no bucket elsewhere"):
            Lake("s3://elsewhere/lake")
        storage, path = BucketStorage(), path_of("s3://elsewhere/lake/one")
        for look in (storage.exists, storage.tag, storage.size, storage.read, storage.names):
            with pytest.raises(Unavailable, match="there is no bucket elsewhere"):
                look(path)


class TestKeys:
    @pytest.mark.parametrize("s3", SERVERS, indirect=True)
    @pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"])
    def test_the_server_does_not_take_them(
        self, s3: S3Server, address: str, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(name, "guessed-by-somebody")

        with pytest.raises(Unavailable, match="AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY") as raised:
            Lake(address, create=True)

        assert "guessed" not in raised.value.message
        monkeypatch.setenv(name, s3.environment()[name])
        assert _objects(address) == []

    @pytest.mark.parametrize("missing", [["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], ["AWS_SECRET_ACCESS_KEY"]])
    def test_there_are_none(self, address: str, monkeypatch: pytest.MonkeyPatch, missing: list[str]) -> None:
        """Nor does the machine have any."""
        for name in missing:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")

        with pytest.raises(Unavailable, match="there are no keys for it: set AWS_ACCESS_KEY_ID"):
            Lake(address, create=True)

    def test_they_may_only_read(self, proxy: FaultProxy, address: str) -> None:
        refused = proxy.fail("403", "PUT", times=None)

        with proxy.counted() as requests, pytest.raises(Unavailable, match=r"keys do not allow this.*policy"):
            Lake(address, create=True)

        assert refused.hits >= 1
        assert requests.total() <= REQUESTS_MAX
        assert _objects(address) == []

    def test_a_write_that_they_do_not_allow_changes_nothing(self, lake: Lake, proxy: FaultProxy, address: str) -> None:
        before = _objects(address)
        proxy.fail("403", "PUT", times=None)

        with pytest.raises(Unavailable, match="keys do not allow this"):
            lake.table("shop.orders").upsert([{"id": 2, "v": "b"}])

        assert lake.table("shop.orders").get(1) == {"id": 1, "v": "a"}
        proxy.heal()
        assert _objects(address) == before
        lake.table("shop.orders").upsert([{"id": 2, "v": "b"}])
        assert lake.table("shop.orders").count() == 2

    @pytest.mark.parametrize("fresh", [True, False], ids=["init", "write"])
    def test_clocks_are_too_far_apart(self, lake: Lake, proxy: FaultProxy, s3: S3Server, fresh: bool) -> None:
        proxy.fail("skewed", "", times=None)

        def write() -> None:
            lake.table("shop.orders").upsert([{"id": 2, "v": "b"}])

        with proxy.counted() as requests, pytest.raises(Unavailable, match="this machine's clock is too far"):
            Lake(s3.address(), create=True) if fresh else write()

        assert requests.total() <= REQUESTS_MAX


class TestWhatAServerAnswers:
    """That of these tests is told what to answer."""

    LOOKS: tuple[Callable[[BucketStorage, PurePath], object], ...] = (
        lambda storage, path: storage.read(path),
        lambda storage, path: storage.tag(path),
        lambda storage, path: storage.create(path, b"1"),
        lambda storage, path: storage.names(path),
    )

    @pytest.fixture
    def answers(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., contextlib.AbstractContextManager[list[str]]]:
        for name, value in {"ACCESS_KEY_ID": "our-id", "SECRET_ACCESS_KEY": "our-key", "REGION": "us-east-1"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "our-token")

        @contextlib.contextmanager
        def answering(status: int, code: str, repeats: str = "") -> Iterator[list[str]]:
            asked = list[str]()

            class Answers(_Web):
                def do_GET(self) -> None:
                    asked.append(self.command)
                    self.rfile.read(int(self.headers.get("Content-Length", 0)))
                    said = repeats.format(token=self.headers["x-amz-security-token"])
                    body = f"<Error><Code>{code}</Code><Message>No.</Message>{said}</Error>".encode()
                    self.send_response(status)
                    self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(body)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(body)

                do_HEAD = do_PUT = do_POST = do_GET

            with _web_server(Answers) as url:
                monkeypatch.setenv("AWS_ENDPOINT_URL", url)
                yield asked

        return answering

    @pytest.mark.parametrize("look", LOOKS, ids=["GET", "HEAD", "PUT", "LIST"])
    @pytest.mark.parametrize(
        ("status", "code", "said"),
        [
            (301, "PermanentRedirect", "another region: set AWS_REGION"),
            (400, "AuthorizationHeaderMalformed", "another region: set AWS_REGION"),
            (400, "ExpiredToken", "the keys have expired"),
            (400, "InvalidToken", "does not take AWS_SESSION_TOKEN"),
        ],
    )
    def test_the_setting_is_named_at_once(
        self,
        answers: Callable[..., contextlib.AbstractContextManager[list[str]]],
        status: int,
        code: str,
        said: str,
        look: Callable[[BucketStorage, PurePath], object],
    ) -> None:
        with answers(status, code) as asked, pytest.raises(Unavailable, match=said) as raised:
            look(BucketStorage(), path_of("s3://bucket/lake"))

        assert not isinstance(raised.value, InDoubt)
        assert len(asked) <= 2

    @pytest.mark.parametrize(
        ("status", "code", "repeats"),
        [
            (403, "SignatureDoesNotMatch", "<CanonicalRequest>GET\nx-amz-security-token:{token}\n</CanonicalRequest>"),
            (400, "ExpiredToken", "<Token-0>{token}</Token-0>"),
        ],
    )
    def test_a_token_that_it_repeats_is_in_no_traceback(
        self,
        answers: Callable[..., contextlib.AbstractContextManager[list[str]]],
        status: int,
        code: str,
        repeats: str,
    ) -> None:
        """Which is what ends up in logs: the server's own words are the cause of the error."""
        with answers(status, code, repeats), pytest.raises(Unavailable) as raised:
            BucketStorage().read(path_of("s3://bucket/lake"))

        told = "".join(traceback.format_exception(raised.value))
        assert code in told
        assert "our-token" not in told


class TestWhatLiesThere:
    @pytest.mark.parametrize("name", ["AccessDenied", "NoSuchBucket", "latest/meta-data/x", "Missing AccessKeyId"])
    def test_names_that_servers_use_for_errors(self, s3: S3Server, address: str, name: str) -> None:
        """They are names like any others."""
        with Lake(f"{address}/{name}", create=True) as lake:
            table = lake.create_table("shop.orders", SCHEMA, key="id")
            table.upsert([{"id": 1, "v": "a"}])
            table.tag("AccessDenied")
            assert table.to_arrow(as_of="AccessDenied").num_rows == 1

    def test_something_else(self, s3: S3Server, address: str) -> None:
        path = path_of(address) / "report.csv"
        BucketStorage().put(path, b"a,b")

        with pytest.raises(InvalidRequest, match="no lake and not empty"):
            Lake(address, create=True)

        assert _objects(address) == ["report.csv"]

    def test_an_object_where_the_lake_should_be(self, s3: S3Server, address: str) -> None:
        BucketStorage().put(path_of(address), b"a,b")

        with pytest.raises(LithifyError, match=address):
            Lake(address, create=True)

        assert BucketStorage().read(path_of(address)) == b"a,b"

    @pytest.mark.parametrize("content", [b"<html>", b"{}", b'{"format": 99}'])
    def test_a_marker_of_another_kind(self, lake: Lake, address: str, content: bytes) -> None:
        BucketStorage().put(path_of(address) / "_lithify/lake.json", content)

        with pytest.raises((Corruption, InvalidRequest), match=address):
            Lake(address)

    @pytest.mark.parametrize("how", ["deleted", "cut off", "other bytes"])
    def test_a_data_file_that_is_not_what_was_written(self, lake: Lake, address: str, how: str) -> None:
        name = lake.table("shop.orders").snapshot().changes[0].path
        path, storage = path_of(address) / "shop/orders/changes" / name, BucketStorage()
        content = storage.read(path)
        lake.close()
        copies().forget(path)
        if how == "deleted":
            storage.delete(path)
        else:
            storage.put(path, content[:-7] if how == "cut off" else b"x" * len(content))
            copies().forget(path)

        with Lake(address) as again, pytest.raises((Corruption, NotFound), match=name):
            again.sql("select * from shop.orders")

    def test_a_commit_that_somebody_deleted(self, lake: Lake, address: str) -> None:
        """The lake says that it is damaged, and does not go on as if the rows had never been."""
        table = lake.table("shop.orders")
        table.upsert([{"id": 2, "v": "b"}])
        commit = path_of(address) / f"shop/orders/changes/_delta_log/{1:020}.json"
        storage = BucketStorage()
        content = storage.read(commit)
        storage.delete(commit)
        lake.close()

        with Lake(address) as again:
            for use in (lambda table: table.get(2), lambda table: table.fold(), lambda table: table.upsert([])):
                with pytest.raises(Corruption, match=f"commit {commit} is missing, though later ones are there"):
                    use(again.table("shop.orders"))
        storage.put(commit, content)
        with Lake(address) as again:
            assert again.table("shop.orders").to_arrow().num_rows == 2

    @pytest.mark.parametrize("which", ["changes", "base"])
    @pytest.mark.parametrize("how", CUTS)
    def test_a_commit_that_somebody_emptied(self, lake: Lake, address: str, which: str, how: str) -> None:
        """Rows would be gone, and nobody would be told. So says whoever opens the lake, and whoever has it open."""
        with Lake(address) as other:
            reader = other.table("shop.orders")
            log = path_of(address) / "shop/orders" / which / "_delta_log"
            known = len(BucketStorage().names(log))
            table = lake.table("shop.orders")
            for number in range(2, 5):
                table.fold()
                table.upsert([{"id": number, "v": "b"}])
            versions = len(BucketStorage().names(log))
            lake.close()
            for version in (known, versions - 2, versions - 1):
                with _cut(log / commit_name(version), how):
                    with pytest.raises(Corruption, match=commit_name(version)):
                        reader.count()
                    if which == "changes":
                        with pytest.raises(Corruption, match=commit_name(version)):
                            reader.upsert([{"id": 7, "v": "c"}])
            assert reader.count() == 4
        before = _objects(address)
        for version in (1, versions // 2, versions - 1):
            with _cut(log / commit_name(version), how), Lake(address) as again:
                assert again.tables() == ["shop.orders"]
                with pytest.raises(Corruption, match=commit_name(version)):
                    again.table("shop.orders").count()
                with pytest.raises(Corruption, match=commit_name(version)):
                    again.create_table("shop.orders", SCHEMA, key="id")
                assert check_table(again, "shop.orders").status is Status.fail
        assert _objects(address) == before
        with Lake(address) as again:
            assert again.table("shop.orders").count() == 4

    def test_a_commit_in_the_place_of_another(self, lake: Lake, address: str) -> None:
        """It is whole, and one of ours."""
        table, log = lake.table("shop.orders"), path_of(address) / "shop/orders/changes/_delta_log"
        first = len(BucketStorage().names(log)) - 1
        for number in range(2, 5):
            table.upsert([{"id": number, "v": "b"}])
        other = BucketStorage().read(log / commit_name(first + 2))
        lake.close()

        replaced = log / commit_name(first + 1)
        with _replaced(replaced, other), Lake(address) as again, pytest.raises(Corruption, match=replaced.name):
            again.table("shop.orders").count()


@contextlib.contextmanager
def _cut(path: PurePath, how: str) -> Iterator[None]:
    with _replaced(path, CUTS[how](BucketStorage().read(path))):
        yield


@contextlib.contextmanager
def _replaced(path: PurePath, by: bytes) -> Iterator[None]:
    storage = BucketStorage()
    content = storage.read(path)
    storage.put(path, by)
    try:
        yield
    finally:
        storage.put(path, content)


class _Web(BaseHTTPRequestHandler):
    """Any server of web pages."""

    def do_GET(self) -> None:
        body = b"<html>Not found</html>"
        self.send_response(404 if self.command != "PUT" else 405)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class _web_server:
    def __init__(self, pages: type[BaseHTTPRequestHandler] = _Web) -> None:
        self._pages = pages

    def __enter__(self) -> str:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._pages)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_without_an_endpoint_it_is_amazons() -> None:
    """Which needs no setting but a region: making a client asks nobody."""
    client = _client("bucket", frozenset({("AWS_REGION", "eu-central-1")}), once=False)

    assert "endpoint" not in client.config


class TestLargeObjects:
    @pytest.mark.parametrize("size", [0, 1, 99_999, 100_000, 100_001, 1_234_567])
    def test_what_comes_in_parts_is_whole(
        self, s3: S3Server, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        monkeypatch.setattr(lithify.files.bucket.reads, "PART_BYTES", 100_000)
        storage, path, content = BucketStorage(), path_of(address) / "large", random.Random(1).randbytes(size)
        storage.put(path, content)

        storage.download(path, tmp_path / "file")

        assert (tmp_path / "file").read_bytes() == content

    def test_a_part_that_breaks_off_comes_again(
        self, proxy: FaultProxy, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lithify.files.bucket.reads, "PART_BYTES", 100_000)
        storage, path, content = BucketStorage(), path_of(address) / "large", random.Random(1).randbytes(500_000)
        storage.put(path, content)
        for _ in range(3):
            proxy.fail("truncate", on="GET", at="large")

        with proxy.counted() as requests:
            storage.download(path, tmp_path / "file")

        assert (tmp_path / "file").read_bytes() == content
        assert requests["GET"] == 5 + 3

    def test_parts_of_two_objects_are_never_put_together(
        self, s3: S3Server, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lithify.files.bucket.reads, "PART_BYTES", 100_000)
        storage, path = BucketStorage(), path_of(address) / "large"
        storage.put(path, b"a" * 500_000)
        read = lithify.files.bucket.reads._part

        def replaced_after(address: BucketPath, start: int, tag: str | None = None) -> object:
            found = read(address, start, tag)
            if not start:
                storage.put(path, b"b" * 500_000)
            return found

        monkeypatch.setattr(lithify.files.bucket.reads, "_part", replaced_after)
        with pytest.raises(LithifyError, match="changed by others"):
            storage.download(path, tmp_path / "file")

        assert not (tmp_path / "file").exists()

    @pytest.mark.parametrize("told", [150_000, 400_001, 500_000, 700_000])
    def test_of_a_known_size_no_part_waits_for_another(
        self, proxy: FaultProxy, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: int
    ) -> None:
        """And a size that is wrong only costs requests."""
        monkeypatch.setattr(lithify.files.bucket.reads, "PART_BYTES", 100_000)
        path, content = path_of(address) / "large", random.Random(1).randbytes(500_000)
        BucketStorage().put(path, content)

        with proxy.counted() as requests:
            fetch(path, tmp_path / "file", told)

        assert (tmp_path / "file").read_bytes() == content
        assert requests["GET"] == 5 or told > 500_000

    def test_parts_that_were_fetched_at_once_are_of_one_object(
        self, s3: S3Server, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lithify.files.bucket.reads, "PART_BYTES", 100_000)
        monkeypatch.setattr(lithify.files.bucket.reads, "PARTS_AT_ONCE", 1)
        storage, path = BucketStorage(), path_of(address) / "large"
        storage.put(path, b"a" * 500_000)
        read, parts = lithify.files.bucket.reads._part, []

        def replaced_after(address: BucketPath, start: int, tag: str | None = None) -> object:
            found = read(address, start, tag)
            if not parts:
                storage.put(path, b"b" * 500_000)
            parts.append(start)
            return found

        monkeypatch.setattr(lithify.files.bucket.reads, "_part", replaced_after)
        fetch(path, tmp_path / "file", 500_000)

        assert (tmp_path / "file").read_bytes() == b"b" * 500_000
