"""Things several parts of the tests need."""
