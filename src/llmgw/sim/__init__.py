"""The simulator: a whole cluster on one virtual clock, running the production code (law 5)."""
