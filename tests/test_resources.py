"""The table of resources: what units move is conserved, and candidates are vectors over it."""

import numpy as np

from npusim.cost.machine.architecture import MAC_FORMATS
from npusim.cost.units.rates import COPY, CYCLE, GAP, MACHINE_RATES, RATES, READ, WRITE
from npusim.cost.units.resources import (
    BODY,
    CANDIDATE_DTYPE,
    CANDIDATE_SIZE,
    MACS,
    PLACE_OF,
    RESOURCES,
    Server,
)


def test_the_first_columns_of_a_candidate_are_its_resources_in_their_order():
    assert CANDIDATE_DTYPE.names[:BODY] == tuple(resource.name for resource in RESOURCES[:BODY])
    assert np.zeros(2, CANDIDATE_DTYPE).view(np.float64).shape == (2 * CANDIDATE_SIZE,)


def test_a_resource_of_a_candidate_that_takes_time_has_a_rate():
    """Its row of the table of rates is at its place; rows with a meaning of their own come after."""
    named = {CYCLE, READ, WRITE, GAP, COPY}
    levels = {place for name, place in PLACE_OF.items() if name.startswith("level")}
    timed = {i for i, r in enumerate(RESOURCES[:BODY]) if r.server in (Server.GRID, Server.DMA)}
    assert named | levels == timed
    assert BODY < MACHINE_RATES < RATES


def test_bytes_that_the_dma_moves_are_read_or_written_in_sram_once():
    """What comes in is written there, what leaves is read, what is copied is both."""
    for resource in RESOURCES:
        if resource.server is Server.DMA and resource.unit == "B":
            passes = 2.0 if resource.name == "copied_bytes" else 1.0
            assert resource.sram_reads + resource.sram_writes == passes, resource.name
        assert resource.dram in (0.0, 1.0)
        assert not resource.dram or resource.server is Server.DMA, resource.name


def test_multiply_accumulates_stand_in_the_order_of_formats():
    names = [resource.name for resource in RESOURCES[MACS : MACS + len(MAC_FORMATS)]]
    assert names == [f"{form}_macs" for form in MAC_FORMATS]
