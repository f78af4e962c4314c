"""Code that several families share. Not a family: names that begin with "_" are not found as one."""
