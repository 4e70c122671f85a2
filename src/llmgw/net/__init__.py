"""Adapters to the network: message streams, the data plane's HTTP/1.1."""
