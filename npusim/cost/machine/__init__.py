"""A machine as numbers: columns of a design point, and what follows from them."""
