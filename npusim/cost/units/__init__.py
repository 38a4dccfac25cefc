"""Equations of the units, one file each: grid, arrays, DSPs, DMA, memory levels, hosts."""
