"""Suites every implementation of a network port passes."""
