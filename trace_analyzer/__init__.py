"""Say why a multi-GPU training step is slow, from its traces alone."""

__version__ = "0.1.0"
