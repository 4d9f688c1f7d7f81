"""The lake over Arrow Flight SQL, for BI tools and ADBC: read-only, by tokens, limits and processes of the service."""
