"""Package data: the demo sample and published schemas."""
