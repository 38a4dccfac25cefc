"""Renders documents: pages for the terminal and HTML; nothing is computed here."""
