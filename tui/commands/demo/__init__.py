"""`exoctl demo`: a throw-away cluster on this machine that shows what a cluster does."""
