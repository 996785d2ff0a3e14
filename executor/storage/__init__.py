"""Where artifacts lie: files, records, indexes and leases, local and remote."""
