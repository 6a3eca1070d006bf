"""Programs that run training and record it. The only place that imports torch."""
