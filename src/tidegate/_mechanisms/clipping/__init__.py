"""Values whose bound is far above nearly all of them: learn where they end, clip there, then count."""
