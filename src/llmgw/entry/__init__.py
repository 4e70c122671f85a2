"""Joins the parts into processes; the only place that reads configuration, environment and arguments."""
