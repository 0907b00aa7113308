"""Log text as facts: tracebacks and fatal-error dumps. Knows no failure."""
