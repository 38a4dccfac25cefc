"""Calibration: fits the numbers of a data sheet to measurements, each with its error bar.

Here are the fits behind the shipped data sheets: units to their cycles (`units`), and GraNNite's figures
(`granite_fit`). `device` fits a SoC to what a user measured, as `npusim.calibrate(...)` does.
"""
