"""Vocabulary shared by every layer. Nothing in here imports another layer, and nothing imports torch at run time."""
