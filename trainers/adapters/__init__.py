"""What is trainable: one file, one kind of adapter (Config + build). Names starting with "_" are helpers."""
