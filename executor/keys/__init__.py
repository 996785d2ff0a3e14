"""What a step is: values, code and graphs as canonical text, and the keys that are hashed from it."""
