"""The kit: one backend and the law in step, a search for what breaks, and a short run that shows it."""
