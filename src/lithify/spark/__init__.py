"""Spark, the data plane: the only package that imports pyspark."""
