"""Tests of llmgw.core."""
