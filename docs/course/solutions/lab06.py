last, pointwise, wide = "output_stationary", "weight_stationary", "input_stationary"
unroll = [["output_width", "output_height"], ["groups"]]
