"""The scikit-learn classes, one file a family."""
