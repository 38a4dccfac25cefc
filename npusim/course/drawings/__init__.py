"""Pictures of the lessons as plotly figures: a file per subject."""
