"""Spark's own way into a bucket: s3a, the connector of Hadoop, which is not part of Spark.

Where a session has it, `to_spark` and feeds are native scans of the objects: Spark chooses columns and row groups, on
every machine, and no copy is made. Where Lithify starts the session for a lake in a bucket, it tells s3a where the
server is, and that keys come from the environment or the role of each machine. Spark would put keys of the driver's
environment into the configuration that it sends to executors: it is told to leave them empty. A session of somebody
else is taken as it is.

Whether a session reads a bucket is tried, with the first object that is wanted: its size is asked through s3a, by a
task, and has to be what the log says. So a session that lacks the connector, has other keys or looks at another server
is found out before it is relied on; one line says what to add, and objects are read in the other ways
(`remote_files`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.find_spark_home import _find_spark_home

from lithify.errors import InvalidRequest
from lithify.files.addresses import BucketPath, is_remote
from lithify.files.open_storage import storage_of
from lithify.spark.paths import literal, s3a_path
from lithify.spark.remote_files import NamedFile
from lithify.spark.target import identity, runs_here
from lithify.spark.tasks import SPARK_ERRORS, compute_failed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lithify.settings import S3aChoice

logger = logging.getLogger(__name__)

# The SDK that a version of the connector was built with. Its bundle of everything has 686 MB; these parts have 13.
SDK_OF_HADOOP = {"3.5.0": "2.35.4"}
SDK_PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
# The rest is part of Spark, in versions of its own.
EXCLUDED = (
    "software.amazon.awssdk:bundle",
    "io.netty:*",
    "org.slf4j:slf4j-api",
    "commons-codec:commons-codec",
    "commons-logging:commons-logging",
    "org.apache.httpcomponents:httpclient",
    "org.apache.httpcomponents:httpcore",
)
PACKAGES_CONF, EXCLUDES_CONF = "spark.jars.packages", "spark.jars.excludes"
_TOLD = "spark.lithify.s3a"
_S3A = "spark.hadoop.fs.s3a."
_KEYS = ("access.key", "secret.key", "session.token")
_PROVIDER = "aws.credentials.provider"
_ENVIRONMENT = "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider"
_WEB_IDENTITY = "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
_MACHINE = "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
_LACKING = "org.apache.hadoop.fs.s3a.S3AFileSystem not found"
# A trial must not take minutes, and what it opens must not serve others.
_TRIAL = {
    "fs.s3a.impl.disable.cache": "true",
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "2",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.timeout": "20s",
}
_SESSIONS_REMEMBERED_MAX = 64
AGAIN_S = 300.0


# -- a session that is started here


def launch_conf(choice: S3aChoice, asked: Mapping[str, str]) -> dict[str, str]:
    """All that a session for a lake in a bucket is started with. What the caller asks for wins."""
    if choice == "off":
        return dict(asked)
    conf = {_TOLD: choice} | _places(os.environ)
    own = {f"{_S3A}{name}" for name in (*_KEYS, _PROVIDER)}
    if not own & set(asked):
        conf |= {f"{_S3A}{name}": "" for name in _KEYS}
        conf[f"{_S3A}{_PROVIDER}"] = _providers(os.environ)
    conf |= asked
    if choice == "packages":
        for name, further in ((PACKAGES_CONF, packages()), (EXCLUDES_CONF, EXCLUDED)):
            conf[name] = ",".join([*filter(None, [asked.get(name, "").strip()]), *further])
    return conf


def _places(environ: Mapping[str, str]) -> dict[str, str]:
    from lithify.files.bucket.client import server

    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    conf = {f"{_S3A}endpoint.region": region}
    if endpoint := server():
        conf[f"{_S3A}endpoint"] = endpoint
        conf[f"{_S3A}path.style.access"] = "true"
        conf[f"{_S3A}connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
    return conf


def _providers(environ: Mapping[str, str]) -> str:
    """Where keys are looked for, in the order in which all of Lithify does."""
    web = [_WEB_IDENTITY] if environ.get("AWS_WEB_IDENTITY_TOKEN_FILE") else []
    return ",".join([_ENVIRONMENT, *web, _MACHINE])


def packages() -> tuple[str, ...]:
    """The connector for the Hadoop of this Spark, by its names in Maven's registry."""
    found = hadoop_version()
    if (sdk := SDK_OF_HADOOP.get(found or "")) is None:
        known = ", ".join(SDK_OF_HADOOP)
        raise InvalidRequest(
            f"s3a = packages knows what Hadoop {known} needs, and Spark here comes with {found or 'another one'}: put "
            f"hadoop-aws of that version into spark_conf, as {PACKAGES_CONF}, and set s3a = auto"
        )
    return (f"org.apache.hadoop:hadoop-aws:{found}", *(f"software.amazon.awssdk:{part}:{sdk}" for part in SDK_PARTS))


def hadoop_version() -> str | None:
    jars = Path(_find_spark_home()) / "jars"
    found = next(jars.glob("hadoop-client-api-*.jar"), None)
    return None if found is None else found.stem.removeprefix("hadoop-client-api-")


# -- what a read may use

_choice: ContextVar[S3aChoice] = ContextVar("s3a", default="off")


@contextlib.contextmanager
def chosen(choice: S3aChoice) -> Iterator[None]:
    """For the frames that are made inside."""
    token = _choice.set(choice)
    try:
        yield
    finally:
        _choice.reset(token)


@dataclass(frozen=True)
class _Verdict:
    reads: bool
    until_s: float = float("inf")


_lock = threading.Lock()
_verdicts: OrderedDict[tuple[tuple[str, str], str], _Verdict] = OrderedDict()


def reads(spark: SparkSession, files: Sequence[NamedFile]) -> bool:
    """Whether the session reads the bucket of these objects itself, and may."""
    if _choice.get() == "off" or not files or not all(is_remote(file.path) for file in files):
        return False
    path, size_bytes = files[0].path, files[0].size_bytes
    bucket = BucketPath(path).bucket
    key = (identity(spark), bucket)
    with _lock:
        known = _verdicts.get(key)
        if known is None or known.until_s < time.monotonic():
            known = _verdicts[key] = _try(spark, bucket, path, size_bytes)
            while len(_verdicts) > _SESSIONS_REMEMBERED_MAX:
                _verdicts.popitem(last=False)
        return known.reads


def _try(spark: SparkSession, bucket: str, path: str, size_bytes: int) -> _Verdict:
    try:
        found = spark.read.format("binaryFile").options(**_TRIAL).load(literal(s3a_path(path))).select("length")
        row = found.head()
        if row is not None and row[0] == size_bytes:
            return _Verdict(True)
        why = f"of {path} it finds {'nothing' if row is None else f'{row[0]} bytes'} instead of {size_bytes} bytes"
    except SPARK_ERRORS as error:
        why = "" if _LACKING in str(error) else compute_failed(error).message
    storage_of(path).size(BucketPath(path))  # one that is gone says nothing of the session
    _say(spark, bucket, why)
    return _Verdict(False) if not why else _Verdict(False, time.monotonic() + AGAIN_S)


def _say(spark: SparkSession, bucket: str, why: str) -> None:
    here = runs_here(spark)
    instead = "local copies are read" if here else "tasks read the objects, and hand all rows over"
    if why:
        logger.warning(
            "Spark does not read s3://%s itself, so %s: %s. Check spark.hadoop.fs.s3a.endpoint, endpoint.region, "
            "path.style.access and aws.credentials.provider of the session, or set s3a = off",
            bucket,
            instead,
            why,
        )
        return
    version = hadoop_version() or next(iter(SDK_OF_HADOOP))
    named = ",".join(packages()) if version in SDK_OF_HADOOP else f"org.apache.hadoop:hadoop-aws:{version}"
    ours = here and spark.conf.get(_TOLD, "") == "auto"
    logger.log(
        logging.INFO if ours else logging.WARNING,
        "Spark lacks the s3a connector to read s3://%s itself, so %s: set s3a = packages where Lithify starts Spark, "
        "or start yours with %s=%s %s=%s",
        bucket,
        instead,
        PACKAGES_CONF,
        named,
        EXCLUDES_CONF,
        ",".join(EXCLUDED),
    )
