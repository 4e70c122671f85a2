"""Joins settings, adapters and shells into the processes of each role; the only place that reads files, env, argv."""
