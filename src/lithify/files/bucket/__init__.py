"""A lake in a bucket: objects behind conditions and marks, and copies of them on this machine's disk."""
