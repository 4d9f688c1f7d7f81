"""What happens to a table: writing, reading, folding, jobs and their recovery."""
