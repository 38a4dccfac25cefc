"""Lessons and an explorer in the browser: interactive pages that this machine serves to itself alone."""
