"""A run handed over to other tools: Perfetto's UI, SQLite, Parquet."""
