"""The step as a program: host tasks, GPU operations and what waits for what, replayed at will."""
