"""How many bits labels take to be sent: description length."""
