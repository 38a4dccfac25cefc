r"""22. Many networks on one NPU.

A camera and a graph network share an NPU that is half idle. Why do frames come too late, and which rule of the queue helps?

A request that finds the NPU busy waits. Requests of the graph network come at random times (*Poisson*), and each takes the same time $s$. At a utilisation
$\rho$ their mean wait is that of the queue *M/D/1*: half the service time, times $\rho / (1 - \rho)$. It grows without end as $\rho$ nears one.
The camera sends a frame 30 times a second, through MobileNetV2, and wants each answer within 33 ms. A request of the graph network, a GAT, holds several graphs;
it occupies the NPU for all of them. The second picture has both streams: *in order of arrival*, with *frames first*, or with frames that also *interrupt* between two graphs.

Question
--------
The NPU goes from 50 % to 80 % busy, with requests at random times. How does the mean wait grow?

- [ ] 1.6 times
- [ ] twice
- [x] four times

$\rho / (1 - \rho)$ is 1 at 50 % and 4 at 80 %: the idle share counts, and it fell from 50 to 20 %.

Exercise
--------
Requests at random times take 10 ms each and keep an NPU 80 % busy. What is their mean wait?

Answer: 20 ms

Put the utilisation into the formula of M/D/1. It is 10 ms x 0.8 / (2 x 0.2), so 20 ms.

- 40: that is M/M/1; all of these take the same time, so half of it.
- 30: that is the response time; the wait ends where service begins.
"""

from dataclasses import replace
from functools import cache

from npusim.course.drawings import curves
from npusim.course.lesson import Lesson, Shown, Slider, picture
from npusim.reporting.engineering import percent
from npusim.system.answering import system_of
from npusim.system.mix import DeviceSpec, load_mix
from npusim.system.schedulers import SCHEDULERS
from npusim.system.simulation import Flow, Simulation, System

FRAMES_PER_S, DEADLINE_MS = 30, 33.0
STREAMS = (
    f"mobilenet-v2:{FRAMES_PER_S}/s,name=camera,deadline={DEADLINE_MS:g}ms,priority=0",
    "gat-cora:poisson=10/s,name=graphs,techniques=stagr+effop+grax1,priority=1",
)
NPU, REQUESTS, SECONDS = "npu", 4000, 20.0
LOADS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
GRAPHS = [1, 2, 4, 8, 12]
RULES = {
    "in order of arrival": ("fifo", "none"),
    "frames first": ("priority", "none"),
    "frames interrupt": ("priority", "inference"),
}


@cache
def mixed() -> System:
    """Return both streams with their demands on the NPU."""
    return system_of(load_mix(STREAMS))[0]


def service_ms(stream: int) -> float:
    """Return the time of an inference of a stream: 0 is the camera, 1 the graphs."""
    return 1e3 * mixed().flows[stream].demands[NPU].occupancy_s


def md1_wait(load: float) -> float:
    """Return the mean wait of the queue M/D/1, in service times (Pollaczek and Khinchine)."""
    return load / (2.0 * (1.0 - load))


def _graphs(load: float, graphs: int) -> Flow:
    """Return the stream of graphs at a utilisation by it alone."""
    flow = mixed().flows[1]
    arrivals = flow.spec.arrivals.model_copy(update={"rate": 1e3 * load / (graphs * service_ms(1))})
    spec = flow.spec.model_copy(update={"inferences": float(graphs), "arrivals": arrivals})
    return replace(flow, spec=spec)


@cache
def queue(load: float) -> Simulation:
    """Return a run with the stream of graphs alone."""
    simulation = Simulation(replace(mixed(), flows=[_graphs(load, 1)]))
    simulation.run(REQUESTS * service_ms(1) / 1e3 / load)
    return simulation


@cache
def shared(load: float, graphs: int, rule: str) -> Simulation:
    """Return a run with both streams, of `SECONDS`."""
    scheduler, preemption = RULES[rule]
    devices = {NPU: (DeviceSpec(preemption=preemption), mixed().devices[NPU][1])}
    system = replace(mixed(), scheduler=SCHEDULERS.find(scheduler), devices=devices)
    simulation = Simulation(replace(system, flows=[mixed().flows[0], _graphs(load, graphs)]))
    simulation.run(SECONDS)
    return simulation


def mean_wait(load: float) -> float:
    """Return the mean wait of a simulated request of the graphs alone, in service times."""
    waits_s = queue(load).answers[0].wait_s
    return 1e3 * sum(waits_s) / len(waits_s) / service_ms(1)


def missed(load: float, graphs: int, rule: str) -> float:
    """Return the share of simulated frames after their deadline."""
    answers = shared(load, graphs, rule).answers[0]
    return answers.missed / len(answers.response_s)


def longest_ms(graphs: int) -> float:
    """Return the longest response time of a frame that goes first: one request is at work already."""
    return service_ms(0) + graphs * service_ms(1)


_LOAD_AXIS = {"title": "utilisation by graphs", "tickformat": ".0%"}


@picture(load=Slider("utilisation", LOADS, 0.5))
def _waits(load: float) -> Shown:
    lines = {
        "simulated": [mean_wait(each) for each in LOADS],
        "formula of M/D/1": [md1_wait(each) for each in LOADS],
    }
    text = rf"""
        $$\frac{{W}}{{s}} = \frac{{\rho}}{{2\,(1 - \rho)}} = \frac{{{load:g}}}{{2 \cdot {1 - load:.1f}}} = \mathbf{{{md1_wait(load):.2f}}}$$

        A graph takes {service_ms(1):.2f} ms, and waits {md1_wait(load) * service_ms(1):.2f} ms by the formula. In {len(queue(load).answers[0].wait_s):,} simulated requests
        the mean wait is **{mean_wait(load) * service_ms(1):.2f} ms**{": longer than the work itself" if mean_wait(load) > 1.0 else ""}.
        """
    return curves(LOADS, lines, load, _LOAD_AXIS, {"title": "mean wait (service times)"}), text


@picture(load=Slider("utilisation by graphs", LOADS, 0.5), graphs=Slider("graphs of a request", GRAPHS, 8))
def _frames(load: float, graphs: int) -> Shown:
    lines = {rule: [missed(each, graphs, rule) for each in LOADS] for rule in RULES}
    fifo, first, interrupting = (missed(load, graphs, rule) for rule in RULES)
    bound = "no" if longest_ms(graphs) <= DEADLINE_MS else "even such a"
    text = rf"""
        $$\begin{{aligned}} t_\text{{frame}} &\le \underbrace{{{graphs} \cdot {service_ms(1):.2f}}}_{{\text{{the request at work}}}} + \underbrace{{{service_ms(0):.2f}}}_{{\text{{itself}}}}
        = \mathbf{{{longest_ms(graphs):.1f}\;\text{{ms}}}} \\[1ex] & \text{{where frames go first; deadline }} {DEADLINE_MS:g}\;\text{{ms}} \end{{aligned}}$$

        The NPU is busy {percent(shared(load, graphs, "in order of arrival").devices[NPU].busy_s / SECONDS)} of the time. In order of arrival {percent(fifo)} of the frames are late, with frames first **{percent(first)}**,
        where they interrupt {percent(interrupting)}. Where frames go first, {bound} frame can be late.
        """
    axis = {"title": "late frames", "tickformat": ".0%", "rangemode": "tozero"}
    return curves(LOADS, lines, load, _LOAD_AXIS, axis), text


LESSON = Lesson(__doc__, _waits, _frames)
