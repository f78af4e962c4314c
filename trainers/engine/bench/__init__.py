"""`trainers bench step`: what a step, a start and a cached picture cost, beside the plainest loops."""
