"""Pure values that everybody uses: names, schema, types, rows, predicates, snapshot, read plan. No I/O, no clock."""
