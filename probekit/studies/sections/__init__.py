"""The steps of each kind of section of a study."""
