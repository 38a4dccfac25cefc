"""Mixes of networks: closed forms of queueing theory, agreement with estimates, schedulers, refusals."""

import json
import re
from itertools import product
from math import inf

import numpy as np
import pytest

import npusim
from npusim.arch import load_soc
from npusim.cli.program import run
from npusim.engines.limits import limits_of
from npusim.system.answering import balanced, simulate
from npusim.system.demands import Demand
from npusim.system.mix import (
    Bursts,
    Closed,
    DeviceSpec,
    Mix,
    Periodic,
    Poisson,
    StreamSpec,
    Trace,
    load_mix,
    parse_stream,
)
from npusim.system.schedulers import SCHEDULERS
from npusim.system.simulation import Flow, Simulation, System
from npusim.system.statistics import figures, steady

SERVICE_S = 1.0
ANSWERS = 40_000


def poisson(rate):
    return Poisson(kind="poisson", rate=f"{rate} Hz")


def stream(name, arrivals, demand, **further):
    spec = StreamSpec(name=name, network="none", arrivals=arrivals, **further)
    return Flow(spec, {"npu": demand})


def flow(load, name="one", spread="exponential", service_s=SERVICE_S, bytes_=0.0, **further):
    demand = Demand(service_s, service_s, bytes_)
    return stream(name, poisson(load / service_s), demand, spread=spread, **further)


def simulated(flows, contexts=1, preemption="none", scheduler="fifo", dram=inf, seed=0, answers=ANSWERS):
    devices = {"npu": (DeviceSpec(preemption=preemption), contexts)}
    simulation = Simulation(System(flows, devices, dram, SCHEDULERS[scheduler], seed))
    simulation.run(answers * SERVICE_S / 0.5)
    return simulation


def mean(simulation, number=0, waiting=False):
    answers = simulation.answers[number]
    return figures(steady(np.array(answers.wait_s if waiting else answers.response_s)))["mean_s"]


def deterministic(load):
    """M/D/1, as M/G/1 by Pollaczek and Khinchine without variance."""
    return SERVICE_S * (1.0 + load / (2.0 * (1.0 - load)))


LAWS = {
    "M/M/1": (lambda load: ([flow(load)], {}), lambda load: SERVICE_S / (1.0 - load)),
    "M/D/1": (lambda load: ([flow(load, spread="none")], {}), deterministic),
    # Two deterministic services, mixed: second moment (0.5^2 + 1.5^2) / 2 of a mean of 1.
    "M/G/1": (
        lambda load: ([flow(load / 4, "a", "none", 0.5), flow(3 * load / 4, "b", "none", 1.5)], {}),
        lambda load: 0.5 + load * 1.25 / (2.0 * (1.0 - load)),
    ),
    # Many contexts, each of which could draw all of DRAM's bandwidth, share it equally.
    "processor sharing": (
        lambda load: ([flow(load, bytes_=1.0)], {"contexts": 1000, "dram": 1.0}),
        lambda load: SERVICE_S / (1.0 - load),
    ),
}


@pytest.mark.laws
@pytest.mark.parametrize("law", LAWS)
def test_95_percent_intervals_hold_the_mean_of_the_closed_form(law):
    """Of 24 independent intervals at least 19 must hold it: fewer have a probability of 0.1 %."""
    build, expected_s = LAWS[law]
    held = 0
    for load in (0.3, 0.6, 0.8, 0.9):
        for seed in range(6):
            flows, how = build(load)
            simulation = simulated(flows, **how, seed=seed, answers=2000 / (1.0 - load))
            _, interval = mean(simulation)
            held += interval[0] <= expected_s(load) <= interval[1]
    assert held >= 19


@pytest.mark.laws
@pytest.mark.parametrize("preemption", ["none", "instruction"])
def test_priorities_have_the_waiting_times_of_cobham(preemption):
    """M/M/1 with two classes (Cobham 1954), preemptive resume (Kleinrock, Queueing Systems II, 3.4)."""
    held, high, low = 0, 0.3, 0.4
    for seed in range(8):
        flows = [flow(low, "low", priority=2), flow(high, "high", priority=1)]
        simulation = simulated(flows, preemption=preemption, scheduler="priority", seed=seed)
        residual_s = (high + low) * SERVICE_S
        if preemption == "none":
            expected = [
                SERVICE_S + residual_s / ((1 - high) * (1 - high - low)),
                SERVICE_S + residual_s / (1 - high),
            ]
        else:
            expected = [
                (SERVICE_S * (1 - high - low) + residual_s) / ((1 - high) * (1 - high - low)),
                (SERVICE_S * (1 - high) + high * SERVICE_S) / (1 - high),
            ]
        for number, expected_s in enumerate(expected):
            _, interval = mean(simulation, number)
            held += interval[0] <= expected_s <= interval[1]
    assert held >= 12


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(10))
def test_a_random_station_agrees_with_ciw(seed):
    """Two classes, priorities or none, one to three servers; an independent simulator (pip install ciw)."""
    ciw = pytest.importorskip("ciw")
    generator = np.random.default_rng(seed)
    contexts, has_priorities = int(generator.integers(1, 4)), bool(generator.integers(2))
    loads, services_s = generator.uniform(0.15, 0.4, 2), generator.uniform(0.5, 2.0, 2)
    rates = contexts * loads / services_s
    names = ("a", "b")
    network = ciw.create_network(
        arrival_distributions={n: [ciw.dists.Exponential(r)] for n, r in zip(names, rates, strict=True)},
        service_distributions={
            n: [ciw.dists.Exponential(1.0 / s)] for n, s in zip(names, services_s, strict=True)
        },
        number_of_servers=[contexts],
        priority_classes={"a": 0, "b": 1 if has_priorities else 0},
    )
    ciw.seed(seed)
    other = ciw.Simulation(network)
    other.simulate_until_max_time(20_000.0)
    records = sorted(other.get_all_records(), key=lambda record: record.exit_date)
    flows = [
        flow(rate * service_s, name, service_s=service_s, priority=number)
        for number, (name, rate, service_s) in enumerate(zip(names, rates, services_s, strict=True))
    ]
    scheduler = "priority" if has_priorities else "fifo"
    ours = simulated(flows, contexts, scheduler=scheduler, seed=seed, answers=10_000)
    for number, name in enumerate(names):
        times = np.array([one.exit_date - one.arrival_date for one in records if one.customer_class == name])
        theirs_s, theirs = figures(steady(times))["mean_s"]
        ours_s, interval = mean(ours, number)
        error_s = np.hypot(theirs[1] - theirs_s, interval[1] - ours_s)
        # Twenty comparisons at 95 % each: at twice the interval a false alarm has a probability of 0.2 %.
        assert abs(theirs_s - ours_s) <= 2.0 * error_s


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(10))
def test_a_random_network_of_queues_agrees_with_ciw(seed):
    """Host cores that share, a queue of one to three contexts, host cores again; times are deterministic."""
    ciw = pytest.importorskip("ciw")
    generator = np.random.default_rng(seed)
    contexts, before_s, after_s = int(generator.integers(1, 4)), *generator.uniform(0.1, 0.4, 2)
    service_s = generator.uniform(0.5, 1.0) * contexts
    rate = generator.uniform(0.4, 0.8) * min(contexts / service_s, 1.0 / (before_s + after_s))
    times = (before_s, service_s, after_s)
    network = ciw.create_network(
        arrival_distributions={
            "before": [ciw.dists.Exponential(rate), None],
            "after": [None, None],
        },
        service_distributions={
            "before": [ciw.dists.Deterministic(before_s), ciw.dists.Deterministic(service_s)],
            "after": [ciw.dists.Deterministic(after_s), ciw.dists.Deterministic(service_s)],
        },
        class_change_matrices=[
            {"before": {"before": 1.0, "after": 0.0}, "after": {"before": 0.0, "after": 1.0}},
            {"before": {"before": 0.0, "after": 1.0}, "after": {"before": 0.0, "after": 1.0}},
        ],
        routing={"before": [[0.0, 1.0], [1.0, 0.0]], "after": [[0.0, 0.0], [1.0, 0.0]]},
        number_of_servers=[float("inf"), contexts],
    )
    ciw.seed(seed)
    other = ciw.Simulation(network, node_class=[ciw.PSNode, ciw.Node])
    other.simulate_until_max_time(10_000.0 / rate)
    visits: dict[int, list] = {}
    for record in other.get_all_records():
        visits.setdefault(record.id_number, []).append(record)
    whole = sorted(
        (max(r.exit_date for r in of), min(r.arrival_date for r in of))
        for of in visits.values()
        if len(of) == 3
    )
    theirs_s, theirs = figures(steady(np.array([left - came for left, came in whole])))["mean_s"]
    around = [Demand(time_s, time_s, uses={"cpu cores": time_s}) for time_s in (before_s, after_s)]
    demand = Demand(sum(times), service_s, before=(around[0],), after=(around[1],))
    flows = [stream("one", poisson(rate), demand)]
    ours_s, interval = mean(simulated(flows, contexts, seed=seed, answers=5_000.0 / rate))
    assert abs(theirs_s - ours_s) <= 2.0 * np.hypot(theirs[1] - theirs_s, interval[1] - ours_s)


def test_host_work_comes_before_and_behind_the_device_and_shares_cores():
    """Two of four requests at once convert their inputs at half speed each."""
    convert = Demand(1.0, 1.0, uses={"cpu cores": 1.0})
    demand = Demand(4.0, 2.0, before=(convert,), after=(convert,))
    alone, pair = (
        simulated(
            [stream("s", Bursts(kind="bursts", size=size, rate="0.001 Hz"), demand)], contexts=4
        ).answers[0]
        for size in (1, 2)
    )
    assert {*alone.response_s} == {4.0} and pair.response_s[0] == pytest.approx(6.0)


def test_devices_that_share_a_level_divide_its_bandwidth():
    demand = Demand(1.0, 1.0, uses={"l2": 1.0})
    loops = [
        Flow(StreamSpec(name=n, network="none", arrivals=Closed(kind="closed")), {n: demand}) for n in "ab"
    ]
    simulation = Simulation(System(loops, {n: (DeviceSpec(), 1) for n in "ab"}, inf, SCHEDULERS["fifo"]))
    simulation.run(100.0)
    assert [len(each.response_s) for each in simulation.answers] == [49, 49]


def test_a_package_holds_work_back_to_what_its_limits_sustain():
    """Two devices at 30 W each: a burst from idle, then the power that keeps the skin at its limit."""
    limits, idle_w = limits_of(load_soc("core-ultra-series2").package), 2.0
    loops = [
        Flow(
            StreamSpec(name=n, network="none", arrivals=Closed(kind="closed")),
            {n: Demand(1.0, 1.0, work_j=30.0)},
        )
        for n in "ab"
    ]
    system = System(
        loops, {n: (DeviceSpec(), 1) for n in "ab"}, inf, SCHEDULERS["fifo"], 0, limits, idle_w, 37.0
    )
    simulation = Simulation(system)
    simulation.run(20.0)
    assert simulation.answered * 30.0 / 20.0 > 1.5 * (17.0 - idle_w)
    for _ in range(20):
        simulation.run(simulation.now_s + 100.0)
        assert (simulation.shared.governor.state <= limits.most * (1.0 + 1e-9)).all()
    before = simulation.answered
    simulation.run(simulation.now_s + 1000.0)
    sustained_w = (simulation.answered - before) * 30.0 / 1000.0 + idle_w
    assert sustained_w == pytest.approx(float(limits.most_w.min()), rel=0.01)


@pytest.mark.laws
def test_a_closed_loop_sustains_what_its_estimate_says():
    """A limit below the power of the CPU: the throughput in the end is that of --sustained."""
    limit = ["package.power_limit=8W"]
    expected = npusim.estimate("resnet-50", device="cpu", settings=limit, sustained=True).sustained
    assert expected.held_by == "power limit"
    run_ = simulate(
        load_mix(["resnet-50:closed,device=cpu"], set={"package.power_limit": "8W"}, duration="600s")
    )
    count = run_.simulation.answered
    run_.simulation.run(1600.0)
    assert (run_.simulation.answered - count) / 1000.0 == pytest.approx(expected.throughput_per_s, rel=0.02)


def test_inputs_in_the_application_s_format_are_converted_by_the_cpu():
    plain, converted = (npusim.mix(f"mobilenet-v2:5/s{io}", duration="20s") for io in ("", ",io=fp32"))
    added_s = converted.streams[0].mean_s - plain.streams[0].mean_s
    # An image of 150,528 elements is read as fp32 and written as fp16: 0.9 MB at some 60 GB/s.
    assert 5e-6 < added_s < 1e-3 and converted.streams[0].mean_s == converted.streams[0].alone_s
    use = {each.name: each.utilisation for each in converted.resources}
    assert use["cpu cores"] > {each.name: each.utilisation for each in plain.resources}["cpu cores"]


def test_a_twin_of_a_device_serves_half_of_the_requests():
    streams = ["mobilenet-v2:poisson=200/s,device=npu"]
    mix = load_mix(streams, duration="20s")
    data = mix.model_dump(mode="json", by_alias=True) | {"copies": {"npu2": "npu"}}
    data["streams"][0]["device"] = "npu,npu2"
    two = npusim.mix(Mix.model_validate(data))
    assert [each.name for each in two.resources][:2] == ["npu", "npu2"]
    assert two.streams[0].mean_s < npusim.mix(mix).streams[0].mean_s
    with pytest.raises(npusim.NpusimError, match=r"nqu.*did you mean `npu`"):
        npusim.mix(Mix.model_validate(data | {"copies": {"npu2": "nqu"}}))


@pytest.mark.laws
def test_a_closed_network_has_the_throughput_of_mean_value_analysis():
    """Clients that think and one exponential server (Reiser and Lavenberg 1980)."""
    clients, think_s = 6, 4.0
    queue = 0.0
    for number in range(1, clients + 1):
        response_s = SERVICE_S * (1.0 + queue)
        queue = number / (think_s + response_s) * response_s
    held = 0
    for seed in range(8):
        arrivals = Closed(kind="closed", clients=clients, think=f"{think_s} s")
        loop = stream("loop", arrivals, Demand(SERVICE_S, SERVICE_S), spread="exponential")
        _, interval = mean(simulated([loop], seed=seed, answers=10_000))
        held += interval[0] <= response_s <= interval[1]
    assert held >= 6


@pytest.mark.parametrize(("contexts", "bytes_", "dram"), [(2, 0.8, 1.0), (4, 0.4, 1.0)])
def test_contexts_that_draw_more_than_dram_sustains_slow_each_other(contexts, bytes_, dram):
    """A closed loop that keeps all contexts busy is bound by the bytes."""
    arrivals = Closed(kind="closed", clients=contexts)
    loop = stream("loop", arrivals, Demand(1.0, 1.0, bytes_))
    simulation = simulated([loop], contexts=contexts, dram=dram, answers=500)
    assert simulation.answered / simulation.now_s == pytest.approx(dram / bytes_, rel=0.01)


def test_layers_are_ends_of_preemption_and_resuming_costs(tmp_path):
    """The urgent request comes at 0.3, the layer ends at 0.5; the other resumes at 0.6 and pays 0.1."""
    (tmp_path / "times.csv").write_text("time_s\n0.3\n")
    arrivals = Trace(kind="trace", file=tmp_path / "times.csv")
    urgent = stream("urgent", arrivals, Demand(0.1, 0.1), priority=1)
    other = Demand(1.0, 1.0, boundaries=(0.5, 1.0))
    spec = DeviceSpec(preemption="layer", switch_cost="0.1 s")
    slow = stream("slow", Periodic(kind="periodic", rate="0.01 Hz"), other, priority=2)
    simulation = Simulation(System([slow, urgent], {"npu": (spec, 1)}, inf, SCHEDULERS["priority"]))
    simulation.run(50.0)
    assert simulation.answers[1].response_s[0] == pytest.approx(0.3)
    assert simulation.answers[0].response_s[0] == pytest.approx(1.2)


def test_fair_queueing_gives_backlogged_streams_their_shares():
    def loop(name, share):
        return stream(name, Closed(kind="closed", clients=8), Demand(1.0, 1.0), share=share)

    simulation = simulated([loop("a", 1.0), loop("b", 3.0)], scheduler="fair", answers=2000)
    a, b = (len(one.response_s) for one in simulation.answers)
    assert b / a == pytest.approx(3.0, rel=0.02)


def test_earliest_deadline_first_keeps_deadlines_that_fixed_priorities_miss():
    """Two periodic streams at a load of 0.97: EDF keeps all below 1 (Liu and Layland 1973)."""

    def periodic(name, rate, service_s, priority):
        demand, deadline = Demand(service_s, service_s), f"{1.0 / rate!r} s"
        arrivals = Periodic(kind="periodic", rate=f"{rate} Hz")
        return stream(name, arrivals, demand, deadline=deadline, priority=priority)

    def missed(scheduler):
        flows = [periodic("a", 0.2, 2.0, 1), periodic("b", 1.0 / 7.0, 4.0, 2)]
        run_ = simulated(flows, preemption="instruction", scheduler=scheduler, answers=5000)
        return sum(one.missed for one in run_.answers)

    assert missed("edf") == 0 < missed("priority")


def test_a_batch_waits_for_others_no_longer_than_it_may():
    answer = npusim.mix(load_mix(["mobilenet-v2:10/s,batch=4@5ms"], duration="5 s")).streams[0]
    alone_s = npusim.estimate("mobilenet-v2").latency_s
    assert answer.p50_s == pytest.approx(alone_s + 5e-3, rel=1e-9)


@pytest.mark.parametrize("network", ["gcn-cora", "yolov8n"])
def test_a_single_stream_at_low_load_takes_the_estimate_to_the_last_digit(network):
    answer = npusim.mix(f"{network}:poisson=0.01/s", requests=400).streams[0]
    assert answer.p50_s == npusim.estimate(network).latency_s
    periodic = npusim.mix(f"{network}:5/s", requests=400).streams[0]
    assert periodic.mean_s == periodic.p999_s == npusim.estimate(network).latency_s


@pytest.mark.laws
@pytest.mark.parametrize(("hint", "clients"), [("latency", 1), ("throughput", 8)])
def test_a_closed_loop_has_the_throughput_of_the_estimate(hint, clients):
    answer = npusim.mix(f"yolov8n:closed,hint={hint},clients={clients}", requests=4000).streams[0]
    expected = npusim.estimate("yolov8n", hint=hint).throughput_per_s
    assert answer.throughput_per_s == pytest.approx(expected, rel=0.02)


def test_a_mix_is_the_same_from_a_file_and_inline(tmp_path, capsys):
    (tmp_path / "times.csv").write_text("time_s\n0\n0.1\n0.1\n0.4\n")
    file = tmp_path / "mix.yaml"
    file.write_text(
        "schema: npusim.mix/1\nduration: 2 s\nstreams:\n"
        "- {network: mobilenet-v2, arrivals: {kind: periodic, rate: 30/s, jitter: 2 ms}, deadline: 33 ms}\n"
        "- {network: gcn-cora, arrivals: {kind: trace, file: times.csv}}\n"
    )
    inline = ["mobilenet-v2:30/s,jitter=2ms,deadline=33ms", f"gcn-cora:trace={tmp_path / 'times.csv'}"]
    assert npusim.mix(str(file)) == npusim.mix(*inline, duration="2s")
    trace = tmp_path / "trace.json"
    assert run(["mix", str(file), "--trace", str(trace), "-o", str(tmp_path / "mix.html")]) == 0
    slices = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == 64 and (tmp_path / "mix.html").read_text().count("mobilenet-v2")


@pytest.mark.laws
def test_the_largest_rate_under_a_deadline_keeps_it():
    streams = ["mobilenet-v2:poisson=30/s,deadline=20ms", "yolov8n:poisson=30/s"]
    found = npusim.mix(*streams, requests=2000, find_rate="mobilenet-v2").found_rate
    assert 500.0 < found.rate_per_s < 2000.0 and found.p99_s <= 20e-3


SCHEDULER = """
from npusim.system.schedulers import Order, Scheduler
class Longest(Order):
    def key(self, request):
        return -request.service_s
member = Scheduler("longest", "the longest service first", Longest)
"""


@pytest.mark.laws
def test_a_package_adds_a_scheduler(tmp_path, monkeypatch):
    (tmp_path / "stranger_module.py").write_text(SCHEDULER)
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[npusim.schedulers]\nlongest = stranger_module:member\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(SCHEDULERS, "_complete", False)
    flows = [flow(0.4, "short", "none", 0.5), flow(0.4, "long", "none", 2.0)]
    short_s, long_s = (mean(simulated(flows, scheduler="longest"), number, True)[0] for number in (0, 1))
    assert long_s < short_s
    SCHEDULERS.remove("longest")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("yolov8n:1000/s", "without end; allowed: less than 418.7/s"),
        ("yolov8n:30/s gcn-cora:poisson=40/s", "gcn-cora.*without end"),
        ("yolov8n:30/s,deadline=1ms", "deadline of 1ms.*at least 0.002388 s"),
        ("yolov9n:30/s", "unknown workload.*yolov8n"),
        ("yolov8n", "NETWORK:ARRIVALS"),
        ("yolov8n:30/s,deadlin=33ms", "deadline"),
        ("yolov8n:poisson=-1/s", "rate"),
        ("yolov8n:30/s,jitter=1s", "longer than the period"),
        ("yolov8n:30/s yolov8n:2/s", "two streams named"),
        ("yolov8n:closed,batch=4@5ms", "only 1 requests at a time"),
        ("yolov8n:trace={empty}", "no rows"),
        ("yolov8n:trace={back}", "back.csv:3: time_s.*backwards"),
        ("yolov8n:30/s --scheduler lifo", "unknown scheduler"),
        ("yolov8n:closed --find-rate yolov8n", "--find-rate"),
        ("yolov8n:30/s --find-rate camera", "unknown stream"),
        ("yolov8n:poisson=0.001/s --duration 1ms", "no answer"),
        ("yolov8n:30/s --duration 0s", "time above 0"),
        ("yolov8n:30/s,sram=0.6 vit:1/s,sram=0.5", "1.1 of the SRAM of npu; allowed: shares of at most 1"),
        ("yolov8n:30/s,sram=0.5,device=cpu", "sram: found 0.5 on cpu; allowed: only for a stream on npu"),
        ("yolov8n:30/s,sram=1 vit:1/s", "some SRAM for streams without"),
        ("yolov8n:1/s,device=npu+npu2", "npu\\+npu2.*equal ones of npu"),
    ],
)
def test_bad_input_is_one_message(words, says, tmp_path, capsys):
    (tmp_path / "empty.csv").write_text("time_s\n")
    (tmp_path / "back.csv").write_text("time_s\n2\n1\n")
    text = words.format(empty=tmp_path / "empty.csv", back=tmp_path / "back.csv")
    assert run(["mix", *text.split()]) == 2
    error = capsys.readouterr().err
    assert re.search(says, error), error
    assert "Traceback" not in error


def test_an_error_in_a_file_names_its_line(tmp_path):
    file = tmp_path / "mix.yaml"
    file.write_text("schema: npusim.mix/1\nstreams:\n- network: vit\n  arrivals: {kind: poisson, rate: 5}\n")
    with pytest.raises(npusim.NpusimError, match=r"mix.yaml:4: streams.0.arrivals.*rate"):
        load_mix([file])
    assert parse_stream("vit:bursts=8@2/s")["arrivals"] == {"kind": "bursts", "size": 8, "rate": "2/s"}
    assert isinstance(load_mix(["vit:closed"]), Mix)


@pytest.mark.laws
def test_weights_that_another_network_evicts_are_fetched_again() -> None:
    """Two networks by turns each take the time of a first inference; one alone that of the steady state."""
    kept = ["npu.sram.per_tile=16MiB", "npu.schedule.resident_weights=true"]
    steady = npusim.estimate("resnet-50", settings=kept).latency_s
    first = npusim.estimate("resnet-50", settings=kept, first=True).latency_s
    assert first > 1.1 * steady
    alone = npusim.mix("resnet-50:20/s", settings=kept, duration="20s").streams[0]
    # The first request finds no weights; all others find those of the one before.
    assert alone.p50_s == steady and alone.mean_s < steady * 1.01
    by_turns = npusim.mix(
        "resnet-50:20/s", "resnet-50:20/s,name=other,techniques=quantgr", settings=kept, duration="20s"
    ).streams
    assert by_turns[0].p50_s == pytest.approx(first, rel=1e-12)


@pytest.mark.laws
def test_weights_evicted_by_a_preempting_network_are_fetched_again() -> None:
    kept = ["npu.sram.per_tile=16MiB", "npu.schedule.resident_weights=true"]
    streams = ("resnet-50:5/s,priority=2", "mobilenet-v2:5/s,priority=1")
    fetched, without = (
        npusim.mix(*streams, settings=settings, scheduler="priority", duration="20s").streams[0]
        for settings in (kept, kept[:1])
    )
    first = npusim.estimate("resnet-50", settings=kept, first=True).latency_s
    assert fetched.p50_s == pytest.approx(first, rel=1e-9)
    assert without.p50_s == npusim.estimate("resnet-50", settings=kept[:1]).latency_s


@pytest.mark.laws
def test_a_share_of_sram_keeps_its_weights_and_serves_as_that_sram_does() -> None:
    """16 MiB a tile, 96 KiB of them reserved: a share of 0.5 is half of the rest, beside it nobody evicts."""
    kept = "npu.schedule.resident_weights=true"
    streams = ("resnet-50:20/s,sram=0.5", "resnet-50:20/s,name=other,techniques=quantgr,sram=0.25")
    result = npusim.mix(*streams, settings=["npu.sram.per_tile=16MiB", kept], duration="20s")
    for answer, share, techniques in zip(result.streams, (0.5, 0.25), ("none", "quantgr"), strict=True):
        size = f"npu.sram.per_tile={96 + share * (16384 - 96)}KiB"
        alone = npusim.estimate("resnet-50", techniques=techniques, settings=[size, kept])
        assert answer.alone_s == alone.latency_s
    assert result.streams[0].p50_s == result.streams[0].alone_s


@pytest.mark.laws
def test_a_network_over_two_devices_takes_the_estimate_of_the_best_division() -> None:
    """A single stream by both; energy, too, is that of `estimate --split`, without idle power."""
    scenario = Mix.model_validate(
        {
            "schema": "npusim.mix/1",
            "copies": {"npu2": "npu"},
            "duration": "10 s",
            "streams": [{"network": "bert-base", "device": "npu+npu2", "arrivals": parse_poisson("2/s")}],
        }
    )
    result = npusim.mix(scenario)
    ways = {way.name: way for way in npusim.estimate("bert-base", split=2).divided.ways}
    answer, best_s = result.streams[0], min(ways[name].latency_s for name in ("rows", "channels"))
    assert answer.p50_s == answer.alone_s == pytest.approx(best_s, rel=1e-12)
    use = {resource.name: resource.utilisation for resource in result.resources}
    assert use["npu"] == use["npu2"] == pytest.approx(answer.throughput_per_s * best_s, rel=1e-9)


def parse_poisson(rate: str) -> dict[str, str]:
    return {"kind": "poisson", "rate": rate}


@pytest.mark.few(1)
@pytest.mark.parametrize("scheduler", ["fifo", "priority", "fair"])
@pytest.mark.parametrize("preemption", ["none", "layer", "instruction"])
def test_requests_for_both_devices_and_for_one_never_wait_for_each_other(scheduler, preemption):
    """No request is lost, whoever interrupts whom: busy time is the work, and Little's law holds."""

    def of(name, devices, seconds, load, priority):
        demand = Demand(seconds, seconds, boundaries=(0.25, 0.5, 0.75, 1.0))
        spec = StreamSpec(name=name, network="none", arrivals=poisson(load / seconds), priority=priority)
        return Flow(spec, {devices: demand})

    flows = [
        of("both", "npu+npu2", 1.0, 0.2, 3),
        of("first", "npu", 0.3, 0.3, 1),
        of("second", "npu2", 0.5, 0.3, 2),
        of("urgent", "npu+npu2", 0.1, 0.1, 0),
    ]
    devices = {name: (DeviceSpec(preemption=preemption), 1) for name in ("npu", "npu2")}
    simulation = Simulation(System(flows, devices, inf, SCHEDULERS[scheduler]))
    simulation.run(4000.0)
    work_s = dict.fromkeys(devices, 0.0)
    for item, answers in zip(flows, simulation.answers, strict=True):
        [(place, demand)] = item.demands.items()
        assert answers.arrived - len(answers.response_s) < 60
        assert min(answers.response_s) == demand.latency_s
        for name in place.split("+"):
            work_s[name] += len(answers.response_s) * demand.latency_s
    for name, seconds in work_s.items():
        assert simulation.devices[name].busy_s == pytest.approx(seconds, abs=2.0)
    if scheduler == "priority" and preemption == "instruction":
        urgent_s, _ = mean(simulation, 3)
        assert urgent_s == pytest.approx(deterministic(0.1) * 0.1, rel=0.03)


@pytest.mark.laws
def test_more_of_the_contended_resource_is_simulated() -> None:
    """A second device serves two of four clients at once, more DRAM as in a mix with it."""
    result = npusim.mix("gcn-cora:closed,clients=4", duration="20s")
    [relief] = result.relief
    assert result.contended == "npu" and "a second npu saves gcn-cora 50%" in result.conclusion
    assert relief.mean_s == pytest.approx(result.streams[0].mean_s / 2.0, rel=0.01)
    assert relief.change[0] <= -0.5 <= relief.change[1]
    streams = "llama3.2-1b:closed,clients=4,hint=throughput"
    more = ["dram.bandwidth=120.96GB/s", "dram.peak_bandwidth=204.75GB/s"]
    result, wider = (npusim.mix(streams, settings=settings, duration="20s") for settings in ([], more))
    assert result.contended == "dram"
    assert result.relief[0].mean_s == pytest.approx(wider.streams[0].mean_s, rel=0.01)


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(20))
def test_a_balanced_placement_is_the_best_of_all(seed):
    """Against all placements of five streams on three devices."""
    random = np.random.default_rng(seed)
    flows = []
    for number in range(5):
        spec = StreamSpec(name=str(number), network="none", arrivals=poisson(1.0))
        demands = {name: Demand(s, s) for name, s in zip("abc", random.uniform(0.05, 1.0, 3), strict=True)}
        flows.append(Flow(spec, demands))
    devices = {name: (DeviceSpec(), 1) for name in "abc"}
    places, busiest, bound = balanced(System(flows, devices, inf, SCHEDULERS["fifo"]))

    def highest(chosen):
        use = dict.fromkeys("abc", 0.0)
        for item, name in zip(flows, chosen, strict=True):
            use[name] += item.demands[name].occupancy_s
        return max(use.values())

    best = min(highest(chosen) for chosen in product("abc", repeat=5))
    assert busiest == pytest.approx(highest(places)) == pytest.approx(best)
    assert bound <= best * (1.0 + 1e-9)
