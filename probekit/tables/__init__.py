"""Tables in a paper's form: rows in, Markdown out."""
