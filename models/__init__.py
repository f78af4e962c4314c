"""Model families: one folder each, found by their place. `facts.py` of a family never imports torch."""
