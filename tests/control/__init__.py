"""Tests of llmgw.control."""
