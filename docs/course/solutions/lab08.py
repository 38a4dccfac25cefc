tokens_per_s = 80.64e9 / (3.2e9 * 4.8 / 8)
bandwidth_gb_s = 63
model, weights = "llama3.2-3b", "int4"
