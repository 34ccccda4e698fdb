"""What somebody else adds to probekit."""
