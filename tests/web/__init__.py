"""Tests of llmgw.web."""
