"""Presets: what is trained, as a file. Free of torch, so that a check answers at once."""
