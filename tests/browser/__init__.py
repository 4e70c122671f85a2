"""Tests that look through a real browser."""
