"""The simulator: the production processes on a virtual clock, network and disk."""
