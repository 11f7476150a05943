"""A site's choices: values and the shipped rules in, rule files that a Prometheus loads out."""
