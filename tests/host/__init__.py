"""Tests of llmgw.host."""
