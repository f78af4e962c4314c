"""Pure functions, one paper each: paths, predictions, times, weights, distances, noise, rates, averages."""
