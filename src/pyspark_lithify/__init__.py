"""Spark takes the `DefaultSource` of every installed module named pyspark_*: so `lithify` is a format of each session,
`spark-sql` included, wherever Lithify is installed beside Spark's Python. Nothing has to be registered there.
"""

from lithify.lake.datasource import LithifyDataSource as DefaultSource

__all__ = ["DefaultSource"]
