"""The console: a page of the service for people, made of static files and the same `/v1` that programs use."""
