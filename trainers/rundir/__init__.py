"""The run directory, the only bridge between engine and GUI: layout, events, requests, lock, status. No torch."""
