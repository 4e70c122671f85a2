"""The simulated engine: answers like a model without one."""
