"""Stable Diffusion 2.x."""
