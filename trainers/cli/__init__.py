"""The command line: one file a command. Heavy libraries are imported inside the commands that need them."""
