"""A mix of networks: a camera with a deadline beside three readers of texts that never rest."""

from picture import Study, main

import npusim

STREAMS = ("yolov8n:40/s,deadline=33ms,priority=1,name=camera", "bert-base:closed,clients=3,name=texts")


def study() -> Study:
    """Compare the camera's 99th percentile under four schedulers."""
    tails = {}
    for scheduler in ("fifo", "fair", "edf", "priority"):
        result = npusim.mix(*STREAMS, scheduler=scheduler, duration="10s", seed=1)
        camera = next(stream for stream in result.streams if stream.name == "camera")
        tails[scheduler] = 1e3 * camera.p99_s
    best, worst = min(tails, key=lambda name: tails[name]), max(tails, key=lambda name: tails[name])
    sentence = (
        f"The camera's 99th percentile is {tails[best]:.1f} ms under {best} and {tails[worst]:.1f} ms under "
        f"{worst}, of a deadline of 33 ms."
    )
    return Study(sentence, "99th percentile of the camera (ms)", tails, best)


if __name__ == "__main__":
    main(study, __file__)
