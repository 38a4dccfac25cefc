"""Cost model: lowering to tables, equations of each unit, tiling search, the compiled kernel."""
