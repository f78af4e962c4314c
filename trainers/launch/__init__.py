"""Starting the engine: in this process, and later in many."""
