"""JSON without orjson, as on an executor of Spark, is the same JSON."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lithify.core.strict_json import JSONDecodeError, plain_loads

TEXTS = [
    *(
        b"1",
        b"-0",
        b"1.5",
        b"1e400",
        b"18446744073709551615",
        b"18446744073709551616",
        b"123456789012345678901234567890",
    ),
    *(
        b"NaN",
        b"-Infinity",
        b'"\\ud800"',
        b'"\\ud83d\\ude00"',
        b"[1,]",
        b"\xff",
        b'{"a":1}x',
        b"",
        b"  ",
        b"{'a':1}",
        b"nul",
    ),
    *(b'{"a": [1, null, true], "b": {"c": ""}}', b'"\x01"', b"01", b"\xef\xbb\xbf1"),
]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def answer(loads: Any, text: bytes) -> Any:
    try:
        return "is", repr(loads(text))
    except JSONDecodeError:
        return "refused"


@pytest.mark.parametrize("text", TEXTS, ids=repr)
def test_texts_that_are_read_differently_elsewhere(text: bytes) -> None:
    assert answer(plain_loads, text) == answer(orjson.loads, text)


@given(values)
def test_any_value(value: Any) -> None:
    import json

    text = json.dumps(value).encode()

    assert answer(plain_loads, text) == answer(orjson.loads, text)


def test_what_executors_run_needs_no_orjson() -> None:
    program = (
        "import sys; sys.modules['orjson'] = None\n"
        "import lithify.spark.ingest, lithify.files.text_files\n"
        "from lithify.core.strict_json import dumps, loads\n"
        "assert loads(dumps({'a': [1, 'ü']})) == {'a': [1, 'ü']}"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
