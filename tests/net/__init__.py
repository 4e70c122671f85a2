"""Tests of llmgw.net."""
