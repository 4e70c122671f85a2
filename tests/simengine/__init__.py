"""Tests of llmgw.simengine."""
