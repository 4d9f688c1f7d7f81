"""The child of `examine`: reads footers, and may die of one."""

from __future__ import annotations

import json
import resource
import signal
import sys

from lithify.errors import Corruption, InvalidRequest, LithifyError, NotFound, Unavailable
from lithify.files.open_parquet import footer_of, open_file, read_footer
from lithify.index.footers import entry_of

ADDRESS_BYTES = 8 * 2**30
FILE_S_MAX = 120


def look_at(path: str, size_bytes: int | None) -> None:
    """Raises what is wrong with the file, if that can be told."""
    footer = footer_of(read_footer(path, size_bytes), path)
    entry_of(footer, path, size_bytes or 0)
    with open_file(path) as file:
        names = file.schema_arrow.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidRequest(
            f"{path} has more than one column {twice[0]!r}: write it anew with a name for each, and then take it"
        )


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    for line in sys.stdin:
        path, size_bytes = json.loads(line)
        signal.alarm(FILE_S_MAX)
        answer = None
        try:
            look_at(path, size_bytes)
        except LithifyError as error:
            known = isinstance(error, Corruption | InvalidRequest | NotFound | Unavailable)
            answer = {"code": error.code if known else Corruption.code, "message": error.message, "path": path}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
