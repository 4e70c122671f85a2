"""One file a step of the layout, in order; a released one is never changed."""
