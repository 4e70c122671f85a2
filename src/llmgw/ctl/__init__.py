"""The operator's client of the admin API."""
