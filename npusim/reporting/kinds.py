"""Kinds of JSON documents, each with its model and its page; nothing is imported before its first use."""

from __future__ import annotations

from dataclasses import dataclass

from npusim.plugins import Registry


@dataclass(frozen=True)
class DocumentKind:
    """A kind of JSON document and its page, each as `module:name`, imported on first use."""

    name: str
    """Name of its schema without `npusim.` and version."""
    model: str
    """The `Document`."""
    page: str = ""
    """Returns the `Page` of a document; empty: its fields are its page."""


DOCUMENTS = Registry("npusim.documents", "document", DocumentKind)
"""Every kind of document that npusim and other packages write."""
for _name, _model, _page in (
    ("estimate", "engines:Estimate", "estimate:estimate_page"),
    ("compare", "studies.side_by_side:Comparison", "side_by_side:comparison_page"),
    ("whatif", "studies:WhatIf", "whatif:whatif_page"),
    ("graph-difference", "graph:GraphDifference", "graph_difference:difference_page"),
    ("advise", "studies.advice:Advice", "advice:advice_page"),
    ("map", "studies.placement_document:Placement", "placement:placement_page"),
    ("map-front", "studies.placement_document:MapFront", "placement:map_front_page"),
    ("stream", "studies.stream:Followed", "stream:stream_page"),
    ("mix-result", "system.document:MixResult", "mix:mix_page"),
    ("mix-study", "system.document:MixStudy", "mix:study_page"),
    ("validate", "validation:Validation", ""),
    ("trace-diff", "measuring.traces:TraceDiff", "timeline:diff_page"),
    ("accuracy", "gnn_models.document:AccuracyReport", "accuracy:accuracy_page"),
    ("sweep", "explore.sweep:SweepResult", ""),
    ("query", "explore.query:Answer", ""),
    ("pareto", "explore.fronts:Front", "exploration:pareto_page"),
    ("search", "explore.search:SearchResult", "exploration:search_page"),
    ("calibration", "calibration.device_report:CalibrationReport", "calibration:calibration_page"),
    ("list", "catalogues:Listing", ""),
    ("measurement", "measuring:Measurement", "measurement:measurement_page"),
    ("parameters", "validation.document:Unmeasured", ""),
):
    DOCUMENTS.register(DocumentKind(_name, f"npusim.{_model}", _page and f"npusim.reporting.{_page}"))
