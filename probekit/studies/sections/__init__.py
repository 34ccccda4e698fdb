"""The steps that each kind of section of a study asks for."""
