"""CSV and JSON text as typed rows: the one reader behind every way in. No I/O, no clock."""
