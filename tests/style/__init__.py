"""Tests of how the code is written."""
