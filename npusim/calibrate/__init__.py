"""Fitting: turns measurements into the numbers of a data sheet, each with its error bar.

Like tuning a piano: strike a key, listen, turn the pin a little, and write down which strings could not be
heard.
"""
