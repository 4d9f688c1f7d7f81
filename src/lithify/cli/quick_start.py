"""What short commands need not wait for.

With its first array or constant, pyarrow imports pandas where that is installed, only to know pandas' values from
others: half of the processor time of `lithify tables`. A command that is given no such values, runs nobody else's code
and starts no Spark tells it that there are none. Whoever imports pandas afterwards gets it, and so does pyarrow where
it is asked for a pandas frame.

That lasts as long as the process. So it is done in one that runs a single command, and not where somebody else calls
the command line from theirs.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

_runs_one_command = False


def this_process_runs_one_command() -> None:
    global _runs_one_command
    _runs_one_command = True


def spare_pandas() -> None:
    if not _runs_one_command or "pandas" in sys.modules:
        return
    import pyarrow as pa

    there_is_none = _NoPandas()
    sys.meta_path.insert(0, there_is_none)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(there_is_none)


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not asked for here", name=name)
