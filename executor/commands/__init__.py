"""The commands of `marinade`, one a file; each has `execute(args) -> exit code`."""
