"""MAC arrays by their dataflow: loops unrolled on axes, the rest in an order, operands held in levels.

One set of equations interprets every dataflow. `loops` counts what a part of the loop nest touches,
`machine` is the array as numbers, `unrolling` lays loops on axes, `orders` lists the orders that are tried,
`allocation` says which loops each level holds, `traffic` what that moves, `timing` how long it takes,
`mapper` picks.
"""
