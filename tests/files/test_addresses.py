"""What a user may write as the place of a lake."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lithify import InvalidRequest, Lake
from lithify.files.addresses import BucketPath, path_of
from lithify.files.user_files import named_place


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/a/b",
        "s3://bucket/a/b/",
        "s3://bucket//a///b//",
        "S3://bucket/a/b",
        "s3a://bucket/a/b",
        "s3n://bucket/a/b",
    ],
)
def test_one_place_has_one_spelling(text: str) -> None:
    assert str(named_place(text)) == "s3://bucket/a/b"


@pytest.mark.parametrize("text", ["s3://bucket", "s3://bucket/", "s3a://bucket//"])
def test_a_bucket_is_a_place(text: str) -> None:
    assert str(named_place(text)) == "s3://bucket"
    assert str(named_place(text) / "a") == "s3://bucket/a"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3:/bucket/a", "write s3://bucket/a"),
        ("S3:/bucket/a", "write s3://bucket/a"),
        ("s3://", "names no bucket"),
        ("s3:///a", "names no bucket"),
        ("s3://bucket/a/../b", "no address that a lake can have"),
        ("s3://bucket/a?b", "no address that a lake can have"),
        ("gs://bucket/a", "Google Cloud Storage"),
        ("abfss://box@account/a", "Azure"),
        ("http://host:8080", "--server"),
    ],
)
def test_what_is_no_place_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        named_place(text)


def test_a_path_that_swallowed_a_slash_makes_no_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match="write s3://bucket/lake, as text"):
        Lake(Path("s3://bucket/lake"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("text", ["lake", "./s3:/lake", "~/lake", "/data/s3://lake"])
def test_everything_else_is_a_folder(text: str) -> None:
    assert named_place(text) == Path(text).expanduser().absolute()


def test_a_path_of_a_bucket_stays_one() -> None:
    path = named_place("s3://bucket/lake") / "shop" / "orders"
    assert isinstance(path, BucketPath)
    assert path.is_absolute()
    assert path_of(str(path)) == path == path_of("s3://bucket/lake/shop/orders")
    assert (str(path.parent), path.bucket, path.key) == ("s3://bucket/lake/shop", "bucket", "lake/shop/orders")
