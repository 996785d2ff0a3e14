"""How an artifact came to be: what a record says of its origin, and the tree of its ancestors."""
