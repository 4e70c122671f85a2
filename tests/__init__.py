"""Tests of llmgw."""
