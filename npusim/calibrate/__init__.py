"""Fitting: turns measurements into the numbers of a data sheet, each with its error bar.

Like tuning a piano: strike a key, listen, turn the pin a little, and write down which strings could not be
heard. Here are the fits behind the shipped data sheets: a unit's to its cycles (`units`), and GraNNite's
figures (`granite_fit`). `device` fits a SoC to what a user measured.
"""
