"""Task files: ``listed.txt`` says which."""
