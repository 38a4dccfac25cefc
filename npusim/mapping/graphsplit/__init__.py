"""GraphSplit: which device runs which operator, decided by what it costs.

`device_costs` costs every group on every device, `problem` holds that as plain numbers, `splitting`
finds the best placement and applies it to a graph, `chain_front` finds all Pareto-optimal ones of a chain.
"""
