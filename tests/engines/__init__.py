"""Tests of llmgw.engines."""
