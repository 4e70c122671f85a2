"""Tests of llmgw.entry."""
