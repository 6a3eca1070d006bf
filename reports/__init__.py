"""Renderings of a Report: html, json, markdown, terminal. They format, and compute nothing."""
