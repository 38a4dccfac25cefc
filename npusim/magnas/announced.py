"""What this package adds to npusim's registries."""

from npusim.report.pages import DocumentKind

TRAINING = DocumentKind("magnas-training", "npusim.magnas.document:SupernetTraining")
SCORES = DocumentKind("magnas-scores", "npusim.magnas.stored_scores:SubnetScores")
FIGURES = DocumentKind(
    "magnas-figures",
    "npusim.magnas.figures_document:MappingFigures",
    page="npusim.magnas.figures_page:mapping_figures_page",
)
SEARCH = DocumentKind("magnas-search", "npusim.magnas.architecture_document:ArchitectureSearch")
