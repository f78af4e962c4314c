"""`trainers bench step`: what a step, a start and a cached picture cost here, beside the plainest loop that does the same."""
