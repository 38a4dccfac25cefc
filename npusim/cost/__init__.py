"""What it costs: lowering a graph to tables, the equations of each unit (a file a unit), the search of
tilings, the one compiled kernel.
"""
