"""What an object store's refusals mean to us: translated once, with their cause kept."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from lithify.errors import Conflict, LithifyError, NotFound, Unavailable
from lithify.files.os_errors import Exists, InDoubt

_KEYS = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, and what the bucket's policy allows"
_NO_KEYS = "there are no keys for it: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role"
_ENDPOINT = "AWS_ENDPOINT_URL"
_REGION = "the bucket lies in another region: set AWS_REGION"
_UNKNOWN = f"the server does not know these keys: {_KEYS}"
_EXPIRED = "the keys have expired: renew them (AWS_SESSION_TOKEN)"
# What a server says of itself or of us, not of an object, by the code that it answers with.
_CODES = {
    "NoSuchBucket": "there is no bucket {bucket}: create it, or correct the lake's address",
    "InvalidAccessKeyId": _UNKNOWN,
    "XAdminUserNotFound": _UNKNOWN,  # versitygw
    "SignatureDoesNotMatch": f"the server refuses the signature: {_KEYS}",
    "RequestTimeTooSkewed": "this machine's clock is too far from the server's: set it right (NTP)",
    "AccessDenied": f"the keys do not allow this: {_KEYS}",
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "InvalidToken": "the server does not take AWS_SESSION_TOKEN: renew it, or unset it if these keys need none",
    "AuthorizationHeaderMalformed": _REGION,
    "PermanentRedirect": _REGION,
}
# The code stands in the body of an answer; of many objects that are deleted at once, behind what is said of the first.
# Names of objects stand elsewhere, and may be anything.
_CODE = re.compile(r"status code: .*?<Code>(\w+)</Code>|request failed for key .*\(code: (\w+)\)", re.DOTALL)
# What the client says before it asks, or where it looks for keys: of the machine, where the environment has none.
_CLIENT = (
    (
        re.compile(r"\A[^/\n]*http://169\.254\.169\.254/"),
        "there are no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (re.compile(r"\A[^/\n]*https?://[^/\s]+/latest/(api/token|meta-data/)"), _NO_KEYS),
    (re.compile(r"\AGeneric S3 error: Missing (AccessKeyId|SecretAccessKey)"), _NO_KEYS),
    (re.compile(r" - Received redirect without LOCATION"), _REGION),
)
# What servers repeat of a request that they refuse: the signed headers, with the token among them.
_REPEATED = re.compile(
    r"<(CanonicalRequest|CanonicalRequestBytes|StringToSign\w*|SignatureProvided|AWSAccessKeyId|Token-\d+)>.*?</\1>",
    re.DOTALL,
)
# How obstore spells what happened, behind what it says.
_NO_CONNECTION, _NO_ANSWER, _CUT = "kind: Connect,", "HTTP error", "kind: Interrupted,"
_STATUS = re.compile(r"status code: (\d{3}[^:\n<]*)")
BROKEN_MAX = 5
T = TypeVar("T")


class Moved(Conflict):
    """The object is not the one that was read. Internal."""


class Passing(InDoubt):
    """The server did not answer, or not now."""


class Broken(Passing):
    """Its answer ended in the middle."""


class NotDone(Unavailable):
    """It cannot have done what it was asked: it was not reached, or said so."""


class Denied(Unavailable):
    """These keys may not do that, or the server does not know them."""


def again(path: PurePath, call: Callable[[], T]) -> T:
    """Ask once more where an answer ended in its middle: the client asks again in other cases only."""
    for left in reversed(range(BROKEN_MAX)):
        try:
            with remote(path):
                return call()
        except Broken:
            if not left:
                raise
    raise AssertionError


@contextlib.contextmanager
def remote(path: PurePath) -> Iterator[None]:
    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        # It is kept as the cause, and logged with it.
        error.args = tuple(_REPEATED.sub(r"<\1/>", str(part)) for part in error.args)
        raise _translated(error, path) from error


def _translated(error: Exception, path: PurePath) -> LithifyError:
    text = str(error)
    if (meaning := _of_us(text)) is not None:
        return Denied(f"{path}: {meaning.format(bucket=path.parts[1])}")
    match error:
        case NotFoundError() | FileNotFoundError():
            return NotFound(f"{path} does not exist")
        case AlreadyExistsError():
            return Exists(f"{path} exists already")
        case PreconditionError():
            return Moved(f"{path} was changed by others")
        case PermissionDeniedError() | UnauthenticatedError():
            return Denied(f"the server refuses access to {path}: {_KEYS}")
    if _NO_CONNECTION in text:
        return NotDone(f"the object store cannot be reached for {path}: check {_ENDPOINT} and the network")
    if _CUT in text:
        return Broken(f"the object store's answer for {path} broke off: check the network")
    if (status := _STATUS.search(text)) is not None:
        return _answered(status[1].strip(), path)
    if _NO_ANSWER in text:
        return Passing(f"the object store does not answer for {path}: check {_ENDPOINT} and the network")
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return Passing(f"the object store fails for {path}: {first}")


def _of_us(text: str) -> str | None:
    """What is wrong with keys, bucket or region, if that is what the text tells."""
    if (found := _CODE.search(text)) is not None and (meaning := _CODES.get(found[1] or found[2])) is not None:
        return meaning
    return next((meaning for pattern, meaning in _CLIENT if pattern.search(text)), None)


def _answered(status: str, path: PurePath) -> LithifyError:
    said = f"the object store answers {status} for {path}"
    if status[:3] in ("429", "503"):
        return NotDone(f"{said}: try again later")
    if status[0] == "5" and status[:3] != "501":
        return Passing(f"{said}: try again later")
    # A token that is not taken is a bad request, too; the answer for an object's metadata has no body that tells.
    refusal = Denied if status[:3] == "400" else Unavailable
    return refusal(f"{said}, which it should not: see that {_ENDPOINT} leads to an S3 server that can do this")
