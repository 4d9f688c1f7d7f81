"""CSV and JSON text as typed rows, and rows as text: behind every way in and out. No I/O, no clock."""
