"""The database adapter: tables, queries and migrations, one set for every database."""
