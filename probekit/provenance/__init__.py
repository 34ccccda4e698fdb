"""Where results come from: made again, listed, cleaned up."""
