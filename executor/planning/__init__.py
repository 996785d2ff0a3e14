"""Steps and records -> a plan: every step with an action and a reason."""
