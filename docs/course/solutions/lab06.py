least_traffic = {"last": "output_stationary", "pointwise": "weight_stationary", "wide": "input_stationary"}
unroll = [["output_width", "output_height"], ["groups"]]
