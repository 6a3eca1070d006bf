"""The folder that `collect` puts first on the ranks' PYTHONPATH. Nothing is imported from here."""
