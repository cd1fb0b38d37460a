"""Trees of hyperplanes with a proof: fewest errors (OCT-H), or known class totals (S²OCT)."""
