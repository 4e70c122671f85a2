"""Tests of llmgw.ctl."""
