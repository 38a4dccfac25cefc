"""From candidates to a network: latencies, residency plans, prefetch, and the readable reference."""
