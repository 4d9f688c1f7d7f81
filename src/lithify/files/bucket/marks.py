"""What an object in a bucket carries besides its content, so that the fate of every put can be told.

Its metadata bears the *marks* of the puts that made it what it is, newest last: who does not know whether its own put
was done looks for its mark.

Servers compare tags, and a tag is usually a hash of the content: a content that comes back brings its tag back, and a
put under the condition of that tag would be done a second time. So what is swapped has a *nonce* behind its content,
and no two such objects are equal. It is made of blanks, which nobody minds who reads the text without us; the metadata
says how long it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from lithify.files.os_errors import InDoubt

if TYPE_CHECKING:
    from obstore import GetResult

# With S3's 2 kB for all metadata of an object there is room for these; a writer that was held up for that many changes
# by others has to say that it does not know.
MARKS, MARKS_MAX, MARK_BYTES = "lithify-marks", 160, 6
NONCE, NONCE_BITS = "lithify-nonce", 64


def marked(before: Sequence[str]) -> tuple[str, ...]:
    """The marks of an object with those of the put that is about to change it."""
    return (*before, secrets.token_urlsafe(MARK_BYTES))[-MARKS_MAX:]


def marks_of(found: GetResult) -> tuple[str, ...]:
    return tuple(str(found.attributes.get(MARKS, "")).split())


def tells_of(found: Sequence[str], marks: Sequence[str], path: PurePath) -> bool:
    """Whether the put that bore these marks, the last of which is its own, is among those that made the object."""
    if marks[-1] in found:
        return True
    if len(found) == MARKS_MAX and not set(marks[:-1]) & set(found) and len(marks) > 1:
        raise InDoubt(f"{path} was changed so often meanwhile that it is not known whether this change is among them")
    return False


def nonce() -> bytes:
    return format(secrets.randbits(NONCE_BITS), f"0{NONCE_BITS}b").replace("0", " ").replace("1", "\t").encode()


def nonce_bytes(found: GetResult) -> int:
    """How much of the object is not its content."""
    return int(found.attributes.get(NONCE, 0))


def content_of(found: GetResult) -> bytes:
    data = bytes(found.bytes())
    return data[: len(data) - nonce_bytes(found)]
