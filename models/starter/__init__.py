"""The starter model: a small text-to-image base trained from scratch on emoji pictures."""
