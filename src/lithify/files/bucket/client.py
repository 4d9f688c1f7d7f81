"""How a process reaches a bucket: one client for each bucket and environment.

Keys, endpoint and region come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …) or from the machine
that this runs on. They are read when a bucket is asked for something, and are written nowhere.

A client asks again by itself where asking twice does no harm. A put that hangs on a condition goes out once: whoever
sends it has to know which of its attempts may have been done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache

import obstore
from obstore.store import S3Store

from lithify.errors import InvalidRequest, Unavailable
from lithify.files.addresses import BucketPath
from lithify.files.bucket.errors import again, remote

TIMEOUT_S, CONNECT_S = 20.0, 5.0
RETRIES_MAX, RETRY_S_MAX = 5, 15.0
# The first that is set counts.
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_ADDRESS = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?(/[\w./~-]*)?")
_PREFIX = "AWS_"
_first_process: int | None = None


def client_of(path: BucketPath, *, once: bool = False) -> S3Store:
    """`once`: no request goes out a second time by itself."""
    with remote(path):
        return _client(path.bucket, environment(), once)


def environment() -> frozenset[tuple[str, str]]:
    """Other keys or another endpoint make another client."""
    return frozenset((name, value) for name, value in os.environ.items() if name.startswith(_PREFIX))


def server() -> str:
    """Where the objects of this process's environment lie: one address may mean another object elsewhere."""
    return _endpoint(os.environ) or ""


def check_reach(path: BucketPath) -> None:
    """That the server knows the bucket and lets these keys look into it. It answers a question for an object's metadata
    with a bare status, which does not tell an object that is missing from a bucket that is.
    """
    _reached(path.bucket, environment())


def tell_why(path: BucketPath) -> None:
    """The same, for one that was refused: whatever was known before counts no more."""
    _reached.cache_clear()
    check_reach(path)


@lru_cache(maxsize=32)
def _reached(bucket: str, environment: frozenset[tuple[str, str]]) -> None:
    path = BucketPath(f"s3:/{bucket}")
    again(path, lambda: next(iter(obstore.list(_client(bucket, environment, False), "_lithify/", chunk_size=1)), None))


@lru_cache(maxsize=64)
def _client(bucket: str, environment: frozenset[tuple[str, str]], once: bool) -> S3Store:
    global _first_process
    _first_process = _first_process or os.getpid()
    if _first_process != os.getpid():
        raise Unavailable(
            f"this process was forked from one that uses buckets, and cannot reach {bucket} itself: "
            'start processes with multiprocessing.get_context("spawn") or "forkserver"'
        )
    endpoint = _endpoint(dict(environment))
    return S3Store(
        bucket,
        config={} if endpoint is None else {"endpoint": endpoint},
        client_options={
            "timeout": timedelta(seconds=TIMEOUT_S),
            "connect_timeout": timedelta(seconds=CONNECT_S),
            "allow_http": endpoint is not None and endpoint.startswith("http://"),
        },
        retry_config={
            "max_retries": 0 if once else RETRIES_MAX,
            "retry_timeout": timedelta(seconds=RETRY_S_MAX),
            "backoff": {
                "init_backoff": timedelta(milliseconds=50),
                "max_backoff": timedelta(seconds=2),
                "base": 2,
            },
        },
    )


def _forget_clients() -> None:
    _client.cache_clear()
    _reached.cache_clear()


os.register_at_fork(after_in_child=_forget_clients)


def _endpoint(variables: Mapping[str, str]) -> str | None:
    """One that is spelled as http:// is meant so. None: Amazon's."""
    for name in ENDPOINTS:
        if text := variables.get(name, "").strip():
            if "@" in text:  # what stands before it may be a password: it is not repeated
                raise InvalidRequest(
                    f"{name} holds an '@': write a server's address without user and password, as in "
                    "https://s3.example.com:9000; keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                )
            if not _ADDRESS.fullmatch(text):
                raise InvalidRequest(f"{name} is {text!r}: write a server's address, as in https://s3.example.com:9000")
            return text.rstrip("/")
    return None
