"""Tests of llmgw.sim."""
