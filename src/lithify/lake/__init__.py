"""What users hold: Lake, Table, the catalog, open tables, the data source."""
