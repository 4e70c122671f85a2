"""Runs the program as `python -m llmgw`; children of the program are started this way."""

from llmgw.entry.main import main

if __name__ == "__main__":
    main()
