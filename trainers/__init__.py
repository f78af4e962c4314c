"""Train diffusion models for images and video; see docs/architecture.md for the map of this package."""

__version__ = "0.1.0"
