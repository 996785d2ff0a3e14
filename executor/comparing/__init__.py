"""Two recipes, revisions, records or runs -> what differs and what it costs."""
