"""Analyses: pure functions from a run to frozen results."""
