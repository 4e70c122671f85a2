"""Tests of scripts/ and requirements/: what a newcomer runs first."""
