"""How many bits labels take: description length and V-information."""
