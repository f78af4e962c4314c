"""How weights move: one file, one optimizer (Config + build). Names starting with "_" are helpers."""
