"""Between the node and the screen: a thread each, one bounded inbox, one store."""
