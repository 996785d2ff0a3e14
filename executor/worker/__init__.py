"""One step, in the process that runs it."""
