"""What is kept of a run: checkpoints to resume from, and exports to use elsewhere."""
