"""What a word is."""


def split(line: str) -> list[str]:
    """The words of a line."""
    words = line.split()
    return [word for word in words if word]
