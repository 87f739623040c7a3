"""What a notebook shows: models (pure functions), widgets (traits) and static pages."""
