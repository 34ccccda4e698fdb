"""Description length: the bits needed to transmit labels."""
