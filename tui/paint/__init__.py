"""Drawing on cells: canvas, inks, bars."""
