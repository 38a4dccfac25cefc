"""From a mapped graph to the table of operators."""
