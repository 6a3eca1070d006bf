"""The root-cause catalogue, one file a rule."""
