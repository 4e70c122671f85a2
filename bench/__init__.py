"""Measurements: each module runs real processes, writes bench/results/NAME.json, and asserts nothing."""
