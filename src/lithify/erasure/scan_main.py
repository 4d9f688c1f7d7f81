"""The process that a scan runs in: it has opened no table, so nothing that it says comes from memory. What it is to
look for comes through a pipe: a command line is seen by others.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pyarrow as pa

from lithify.erasure.key_rows import Keys
from lithify.erasure.needles import Needle
from lithify.erasure.scan import scan, told


def main() -> None:
    asked = json.load(sys.stdin)
    with pa.ipc.open_stream(base64.b64decode(asked["keys"])) as stream:
        rows = stream.read_all()
    keys = Keys(rows.column_names, rows)
    needles = [Needle.parsed(said) for said in asked["needles"]]
    found = scan([Path(root) for root in asked["roots"]], Path(asked["table"]), keys, needles)
    json.dump(told(found), sys.stdout)


if __name__ == "__main__":
    main()
