"""Work that writes many files before one commit: manifests, recovery, leases, journal."""
