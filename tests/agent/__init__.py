"""Tests of llmgw.agent."""
