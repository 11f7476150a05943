"""`nodevitals rules backtest`: what the rules would have notified over the last days."""
