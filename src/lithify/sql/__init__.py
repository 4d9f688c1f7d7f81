"""Interactive SQL: the only importer of datafusion."""
