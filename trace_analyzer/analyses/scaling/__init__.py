"""Scaling efficiency: what several GPUs give, how sure that is, and where the loss went."""
