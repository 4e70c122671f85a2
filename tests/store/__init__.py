"""Tests of llmgw.store."""
