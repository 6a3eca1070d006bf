"""Readers: files in, model out. They never analyse."""
