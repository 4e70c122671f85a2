"""The router process: authenticates, admits, chooses a replica and relays."""
