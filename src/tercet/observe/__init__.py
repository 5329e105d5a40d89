"""Facts become metrics and log lines.

Is: plain counters and histograms that cost next to nothing, their exposition for Prometheus under
our names and vLLM's, and one log line an event.
Is not: decisions; whatever is counted here, nothing acts on it. Never sees a prompt's text.
May import: base, messages.
"""
