"""GraphSplit: which device runs which operator, decided by what it costs.

`device_costs` costs every group on every device, `problem` holds that as plain numbers, `dynamic` finds the
best placement, `splitting` applies it to a graph.
"""
