"""Interactive SQL, in this process. The only importer of datafusion."""
