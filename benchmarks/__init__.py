"""Tables of measurements: ``python -m benchmarks`` lists them and runs one by its name."""
