"""The format "lithify" of Spark: options, plan, read, stream, write."""
