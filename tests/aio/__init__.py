"""Tests of llmgw.aio."""
