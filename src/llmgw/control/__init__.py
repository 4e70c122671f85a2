"""The control plane process: keeps the fleet as the catalog asks."""
