"""The routes under `/v1`, one module per subject, each with a `router`."""
