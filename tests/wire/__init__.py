"""Tests of llmgw.wire."""
