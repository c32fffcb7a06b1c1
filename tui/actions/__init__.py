"""One registry of everything a person can do: it gives keys, palette, `:` commands and help."""
