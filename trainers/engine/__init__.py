"""The engine: builds what a preset describes, trains it, and leaves everything it did in the run directory."""
