"""What an installation may lack, and what to say where it is asked for.

`pip install lithify` brings tables, SQL, the command line and the client; Spark's executors may have less. Spark, the
service, pandas and polars come when they are wanted. The client alone imports nothing but httpx and pyarrow.
"""

from __future__ import annotations

from importlib.util import find_spec

from lithify.errors import Unavailable

# Each extra and the packages that it brings; pyproject.toml says the same, with versions.
EXTRAS = {
    "spark": ("pyspark", "py4j"),
    "server": ("fastapi", "starlette", "uvicorn", "httptools"),
    "erase": ("cryptography",),
}
WHAT = {"spark": "Spark", "server": "the service", "erase": "erasing with a receipt"}
FRAMES = ("pandas", "polars")
BUCKETS = "obstore"


def has_spark() -> bool:
    return find_spec("pyspark") is not None


def installed(extra: str) -> bool:
    return all(find_spec(package) is not None for package in EXTRAS[extra])


def need(extra: str) -> None:
    """Raise what `missing` says, if a package of an extra is not there."""
    for package in EXTRAS[extra]:
        if find_spec(package) is None:
            raise missing(package)


def missing(package: str) -> Unavailable:
    """For a package that could not be imported."""
    if package in FRAMES:
        return Unavailable(f"{package} is not installed here: `pip install {package}`, or use to_arrow()")
    for extra, packages in EXTRAS.items():
        if package in packages:
            return Unavailable(
                f'{WHAT[extra]} is not installed here ({package} is missing): `pip install "lithify[{extra}]"`'
            )
    if package == BUCKETS:
        return Unavailable(f"{package} is not installed here, which a lake in a bucket needs: `pip install {package}`")
    return Unavailable(f"{package} is not installed here, which tables and SQL need: `pip install lithify`")
