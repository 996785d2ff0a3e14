"""A plan -> running steps, in the process that the user started."""
