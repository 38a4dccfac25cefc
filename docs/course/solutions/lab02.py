from npusim.course.machine import convolution, estimate

m, k, n = 28 * 28, 3 * 3 * 64, 128
copied_bytes = m * k


def _time_per_mac(channels):
    operator = estimate(convolution(224, channels, 32, kernel=3, stride=2)).operators[0]
    return operator.latency_s / operator.macs


least_channels = next(c for c in range(3, 100) if _time_per_mac(c) <= _time_per_mac(3) / 3)
