"""Memory and devices: what the machine has, what a run takes, and how it is made to fit."""
