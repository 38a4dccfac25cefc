tiles, sram_mb, clock_ghz = 5, 1.5, 1.0
# With 1.5 MB a frame takes 26.6 mJ, with one tile there are fewer than 60 frames per second.
small_tiles, small_sram_mb, small_clock_ghz = 2, 1.75, 1.0
