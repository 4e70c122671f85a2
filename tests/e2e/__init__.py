"""Tests of whole processes, as a user starts them."""
