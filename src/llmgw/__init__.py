"""llmgw: one OpenAI-compatible address for a team's own machines."""

__version__ = "0.1.0"
