"""The two Delta logs of a table: the only importer of deltalake, and the only writer of `_delta_log`."""
