"""A wrong answer for each lab, as a student may well give it, and a part of the hint that it gets."""

MISTAKES = {
    "lab01": ("busy_percent = 100 * 100 / 112\nrows, depth, columns = 368, 368, 368", "N is ragged too"),
    "lab02": ("m, k, n, copied_bytes, least_channels = 56 * 56, 576, 128, 0, 26", "stride 2 skips"),
    "lab03": (
        "held, blocks, dram_mb, least_sram_mb = 'activations', 16, 50.3, 2.5",
        "other choice moves less",
    ),
    "lab04": ("ridge, features, clock_ghz = 94, 208, 0.6", "a MAC is two operations"),
    "lab05": (
        "waiting_percent, best_clock_ghz = 64, 1.2\nbest_clock_without_idle_ghz = 0.7",
        "share of switching",
    ),
    "lab06": (
        "last = pointwise = wide = 'weight_stationary'\nunroll = [['groups'], []]",
        "unfinished",
    ),
    "lab07": ("stack, citeseer_mb, nodes = 'stagr+quantgr+symg', 34.5, 19000", "no hardware"),
    "lab08": (
        "tokens_per_s = 42\nbandwidth_gb_s = 58\nmodel, weights = 'llama3.2-3b', 'int4'",
        "not all of the time",
    ),
    "lab09": (
        "tiles, sram_mb, clock_ghz = 5, 1.5, 1.0\nsmall_tiles, small_sram_mb, small_clock_ghz = 2, 2, 1",
        "meets all limits",
    ),
    "lab10": (
        "fitted_s = [1.59, 13.85, 3.94]\nclock_ghz, macs_per_cycle, bandwidth_gb_s = 2.5, 35, 13\n"
        "predicted_shapes_s = [6.1, 8.2]",
        "type seconds",
    ),
}
