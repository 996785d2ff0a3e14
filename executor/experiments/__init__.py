"""Hypotheses on record: what was expected, predicted and found."""
