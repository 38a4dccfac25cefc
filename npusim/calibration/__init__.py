"""Calibration: fits the numbers of a data sheet to measurements, each with its error bar.

Here are the fits behind the shipped data sheets: units to their cycles (`unit_fits`, `dsp_fit`), and
published figures (`published_fits`). `device` fits a SoC to what a user measured, as `npusim.calibrate(...)`
does.
"""
