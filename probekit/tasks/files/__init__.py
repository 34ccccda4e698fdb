"""Files of labelled text: readers of their formats, and the TOML file that describes a user's data."""
