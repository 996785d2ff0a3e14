"""Keeping a store in order: accept, verify, gc."""
