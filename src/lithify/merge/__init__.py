"""Which version of a row wins, and how it is applied: the only place. No I/O, no clock."""
