"""Tests of the parts of the data plane's HTTP/1.1."""
