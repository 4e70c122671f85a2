"""Joins settings, adapters and shells into processes; the only place that reads files, env and argv."""
